//! Which language's best pair is merged next.
//!
//! The language of largest score is served; ties go to the lowest index. The score is the language's number of tokens
//! (on the development text: its lines are parallel, so totals are tokens a line), or with ratios, the compression so
//! far against the one asked for. The moving window passes over a language that has had its part of the last merges.

use std::collections::VecDeque;

/// Of the last `size` merges, one language may have had count / size <= alpha / parts when it is chosen again.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub size: usize,
    pub alpha: f64,
    /// Number of languages; the reference counts one more after global merges, and can be asked to here
    pub parts: usize,
}

impl Window {
    /// How many of the last merges a language may have had when it is chosen once more.
    pub fn cap(&self) -> usize {
        (0..=self.size)
            .take_while(|&count| self.passes(count))
            .last()
            .unwrap_or(0)
    }

    fn passes(&self, count: usize) -> bool {
        count as f64 / self.size as f64 <= self.alpha / self.parts as f64
    }
}

/// The rule with its memory of the last merges.
pub struct Selector {
    window: Option<Window>,
    recent: VecDeque<usize>,
    counts: Vec<usize>,
}

impl Selector {
    pub fn new(languages: usize, window: Option<Window>) -> Self {
        Self {
            window,
            recent: VecDeque::new(),
            counts: vec![0; languages],
        }
    }

    /// The language to serve among those `open`; None when none is.
    pub fn choose(&self, scores: &[f64], open: impl Fn(usize) -> bool) -> Option<usize> {
        let best = |passes: &dyn Fn(usize) -> bool| {
            let mut best: Option<usize> = None;
            for language in (0..scores.len()).filter(|&l| open(l) && passes(l)) {
                if best.is_none_or(|other| scores[language] > scores[other]) {
                    best = Some(language);
                }
            }
            best
        };
        // Where the window excludes every open language, the neediest is served all the same.
        let passes = |language: usize| {
            self.window
                .is_none_or(|window| window.passes(self.counts[language]))
        };
        best(&passes).or_else(|| best(&|_| true))
    }

    /// The languages of the last merges that the window looks at.
    pub fn recent(&self) -> Vec<u32> {
        self.recent
            .iter()
            .map(|&language| language as u32)
            .collect()
    }

    /// Remember the languages of earlier merges, the oldest first.
    pub fn remember(&mut self, recent: &[u32]) -> Result<(), String> {
        if recent
            .iter()
            .any(|&language| language as usize >= self.counts.len())
        {
            return Err("the window of the state names a language that there is not".into());
        }
        recent
            .iter()
            .for_each(|&language| self.served(language as usize));
        Ok(())
    }

    /// Remember that a language was served.
    pub fn served(&mut self, language: usize) {
        let Some(window) = self.window else { return };
        self.recent.push_back(language);
        self.counts[language] += 1;
        if self.recent.len() > window.size
            && let Some(old) = self.recent.pop_front()
        {
            self.counts[old] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_caps() {
        let cap = |parts| {
            Window {
                size: 100,
                alpha: 2.0,
                parts,
            }
            .cap()
        };
        assert_eq!((cap(30), cap(60)), (6, 3));
    }

    #[test]
    fn a_language_fills_its_part_and_one_more() {
        let mut selector = Selector::new(
            4,
            Some(Window {
                size: 8,
                alpha: 2.0,
                parts: 4,
            }),
        );
        let mut chosen = Vec::new();
        for _ in 0..8 {
            let language = selector.choose(&[1.0, 9.0, 5.0, 5.0], |_| true).unwrap();
            selector.served(language);
            chosen.push(language);
        }
        assert_eq!(chosen, [1, 1, 1, 1, 1, 2, 2, 2]);
    }

    #[test]
    fn ties_go_to_the_lowest_open_language() {
        let selector = Selector::new(3, None);
        assert_eq!(selector.choose(&[2.0, 2.0, 1.0], |_| true), Some(0));
        assert_eq!(selector.choose(&[2.0, 2.0, 1.0], |l| l > 0), Some(1));
        assert_eq!(selector.choose(&[2.0, 2.0, 1.0], |_| false), None);
    }
}
