//! Batches of texts: cut out of one buffer, shared among threads, and joined again.

/// Flat ids of a batch, and where each text ends.
pub type Batch = (Vec<u32>, Vec<u64>);

/// The texts that lie one behind the other in `bytes`, text i from `offsets[i]` to `offsets[i + 1]`.
pub fn texts_of<'a>(bytes: &'a [u8], offsets: &[i64]) -> Result<Vec<&'a str>, String> {
    let cut = |(number, ends): (usize, &[i64])| {
        let place = |end: i64| usize::try_from(end).ok();
        let range = place(ends[0]).zip(place(ends[1]));
        let text = range.and_then(|(start, end)| bytes.get(start..end));
        let text =
            text.ok_or_else(|| format!("the offsets of text {number} lie outside its buffer"))?;
        std::str::from_utf8(text)
            .map_err(|e| format!("text {number} is no UTF-8 at byte {}", e.valid_up_to()))
    };
    offsets.windows(2).enumerate().map(cut).collect()
}

/// Batches one behind the other; the first keeps its place in memory.
pub fn join(parts: Vec<Result<Batch, String>>) -> Result<Batch, String> {
    let mut parts = parts
        .into_iter()
        .collect::<Result<Vec<Batch>, _>>()?
        .into_iter();
    let (mut all_ids, mut all_ends) = parts.next().unwrap_or_default();
    all_ids.reserve(parts.as_slice().iter().map(|part| part.0.len()).sum());
    for (ids, ends) in parts {
        let start = all_ids.len() as u64;
        all_ids.extend_from_slice(&ids);
        all_ends.extend(ends.iter().map(|end| start + end));
    }
    Ok((all_ids, all_ends))
}

/// Runs of texts of about `bytes` bytes each.
pub(crate) fn split_evenly<'a, 'b>(mut texts: &'a [&'b str], bytes: usize) -> Vec<&'a [&'b str]> {
    let mut parts = Vec::new();
    while !texts.is_empty() {
        let mut sum = 0;
        let end = texts.iter().position(|text| {
            sum += text.len();
            sum >= bytes
        });
        let (part, rest) = texts.split_at(end.map_or(texts.len(), |last| last + 1));
        parts.push(part);
        texts = rest;
    }
    parts
}
