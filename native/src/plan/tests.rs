//! The closed forms against the rule as it is written, and what the draw promises.

use super::balanced::{Bulk, give};
use super::*;
use proptest::prelude::*;

/// The rule, slot by slot.
fn slot_by_slot(credits: &mut [i64], batch: u64) -> Vec<u64> {
    let mut counts = vec![0; credits.len()];
    for _ in 0..batch {
        let most = (0..credits.len())
            .max_by_key(|&i| (credits[i], std::cmp::Reverse(i)))
            .unwrap();
        credits[most] -= WHOLE;
        counts[most] += 1;
    }
    counts
}

fn random_shares(seed: u64, k: usize, skew: i32) -> Vec<i64> {
    let key = crate::rng::key(seed, "test", 0, "");
    let sizes: Vec<u128> = (0..k)
        .map(|i| {
            let unit = (crate::rng::random_u64(key, i as u64) >> 11) as f64 / (1_u64 << 53) as f64;
            (unit.powi(skew) * 2e9) as u128 + 1
        })
        .collect();
    super::shares::largest_remainder(WHOLE as u128, &sizes)
        .into_iter()
        .map(|share| (share as i64).max(1))
        .collect()
}

proptest! {
    #[test]
    fn closed_form_is_the_rule(
        credits in prop::collection::vec(-3 * WHOLE..9 * WHOLE, 1..20), batch in 1_u64..200, coarse: bool
    ) {
        let unit = if coarse { WHOLE / 4 } else { 1 };
        let mut fast: Vec<i64> = credits.iter().map(|credit| credit / unit * unit).collect();
        let mut slow = fast.clone();
        let mut counts = vec![0; fast.len()];
        give(&mut fast, batch, &mut counts, &mut Vec::new());
        prop_assert_eq!(counts, slot_by_slot(&mut slow, batch));
        prop_assert_eq!(fast, slow);
    }

    #[test]
    fn periods_change_nothing(seed: u64, k in 1_usize..8, bits in 20_u32..32, steps in 0_u64..40_000, limit in 1_u64..9_000) {
        // Shares that are multiples of 2^bits have short periods.
        let shares = random_shares(seed, k, 2);
        let mut adds: Vec<i64> = shares.iter().map(|share| (share >> bits) << bits).collect();
        adds[0] += WHOLE - adds.iter().sum::<i64>();
        let limits = vec![limit; k];
        let (mut credits, mut counts) = (vec![0; k], vec![0; k]);
        let mut bulk = Bulk { credits: &mut credits, adds: &adds, batch: 1, limits: &limits, counts: &mut counts, seen: None };
        let made = bulk.run(steps);
        let (mut slow, mut given) = (vec![0; k], vec![0; k]);
        for step in 0..steps {
            let before = (slow.clone(), given.clone());
            slow.iter_mut().zip(&adds).for_each(|(credit, add)| *credit += add);
            slot_by_slot(&mut slow, 1).iter().zip(&mut given).for_each(|(count, sum)| *sum += count);
            if given.iter().any(|&count| count > limit) {
                (slow, given) = before;
                prop_assert_eq!(made, step);
                break;
            }
        }
        prop_assert_eq!((credits, counts), (slow, given));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// From any credits that a draw can come to, also where domains of weight 0 keep some.
    #[test]
    fn a_leap_is_a_walk(
        seed: u64, k in 1_usize..12, skew in 0_i32..7, batch in 1_u64..40, before in 0_u64..50, steps in 1_u64..4_000,
        kept in prop::collection::vec(-2 * WHOLE..2 * WHOLE, 12), limit in 1_u64..20_000, limited: bool, coarse: bool,
    ) {
        let mut shares = random_shares(seed, k, skew);
        if coarse {
            shares.iter_mut().for_each(|share| *share = (*share >> 28).max(1) << 28);
        }
        let excess = shares.iter().sum::<i64>() - WHOLE;
        let most = (0..k).max_by_key(|&i| shares[i]).unwrap();
        shares[most] -= excess;
        prop_assume!(shares[most] > 0);
        let adds: Vec<i64> = shares.iter().map(|share| share * batch as i64).collect();
        let mut credits: Vec<i64> = if coarse { kept.iter().map(|part| part >> 28 << 28).collect() } else { kept };
        credits.truncate(k);
        let mut scratch = Vec::new();
        for _ in 0..before {
            super::balanced::add(&mut credits, &adds);
            give(&mut credits, batch, &mut vec![0; k], &mut scratch);
        }
        let limits = vec![if limited { limit } else { u64::MAX }; k];
        let start = credits.clone();
        let (mut slow, mut given, mut made) = (credits.clone(), vec![0; k], 0);
        while made < steps {
            let (mut next, mut counts) = (slow.clone(), given.clone());
            super::balanced::add(&mut next, &adds);
            give(&mut next, batch, &mut counts, &mut scratch);
            if counts.iter().zip(&limits).any(|(count, limit)| count > limit) {
                break;
            }
            (slow, given, made) = (next, counts, made + 1);
            if made % 7 == 0 {
                let least = super::leap::least(&start, &adds, made);
                prop_assert!(least.iter().zip(&slow).all(|(least, credit)| least <= credit), "step {}", made);
                prop_assert!(least.iter().zip(&slow).all(|(least, credit)| (credit - least) % WHOLE == 0));
            }
        }
        if let Some(found) = super::leap::leap(&credits, &adds, batch, made) {
            prop_assert_eq!(found, slow.clone());
        }
        let mut counts = vec![0; k];
        let mut bulk =
            Bulk { credits: &mut credits, adds: &adds, batch, limits: &limits, counts: &mut counts, seen: None };
        prop_assert_eq!(bulk.run(steps), made);
        prop_assert_eq!((credits, counts), (slow, given));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Bounds that hold before a step hold after it, also where some of them are the credits themselves.
    #[test]
    fn bounds_stay_bounds_and_tell_when_they_are_more(
        seed: u64, k in 1_usize..8, skew in 0_i32..5, batch in 1_u64..20, below in prop::collection::vec(0_i64..3, 8),
    ) {
        let adds: Vec<i64> = random_shares(seed, k, skew).iter().map(|share| share * batch as i64).collect();
        let excess = adds.iter().sum::<i64>() - batch as i64 * WHOLE;
        prop_assume!(excess == 0);
        let (mut credits, mut spare, mut scratch) = (vec![0; k], super::leap::Spare::new(k), Vec::new());
        let mut least: Vec<i64> = credits.iter().zip(&below).map(|(credit, below)| credit - below * WHOLE).collect();
        for step in 0..60 {
            let known = spare.step(&mut least, &adds, 0);
            super::balanced::add(&mut credits, &adds);
            give(&mut credits, batch, &mut vec![0; k], &mut scratch);
            prop_assert!(least.iter().zip(&credits).all(|(least, credit)| least <= credit), "step {}", step);
            prop_assert!(!known || least == credits, "step {}", step);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// For as many steps as are said to be free of limits, none is passed, in whatever order domains have their turns.
    #[test]
    fn unlimited_steps_pass_no_limit(
        seed: u64, k in 1_usize..8, skew in 0_i32..3, batch in 1_u64..20, limit in 1_u64..60,
        kept in prop::collection::vec(-2 * WHOLE..2 * WHOLE, 8),
    ) {
        let adds: Vec<i64> = random_shares(seed, k, skew).iter().map(|share| share * batch as i64).collect();
        prop_assume!(adds.iter().sum::<i64>() == batch as i64 * WHOLE);
        let (mut credits, mut scratch) = (kept[..k].to_vec(), Vec::new());
        let (limits, mut counts) = (vec![limit; k], vec![0; k]);
        let bulk = Bulk {
            credits: &mut credits.clone(), adds: &adds, batch, limits: &limits, counts: &mut counts.clone(), seen: None,
        };
        for _ in 0..bulk.unlimited_steps() {
            super::balanced::add(&mut credits, &adds);
            give(&mut credits, batch, &mut counts, &mut scratch);
        }
        prop_assert!(counts.iter().all(|&count| count <= limit), "{:?} of {}", counts, limit);
    }
}

/// Most far steps are leapt to; printed with `-- --nocapture`.
#[test]
fn leaps_are_found() {
    let (mut found, mut tried) = (0, 0);
    for seed in 0..200 {
        let k = 1 + (seed as usize * 7) % 60;
        let batch = [1, 7, 64, 512, 1024][seed as usize % 5];
        let shares = random_shares(seed, k, 1 + (seed % 4) as i32);
        let adds: Vec<i64> = shares.iter().map(|share| share * batch as i64).collect();
        let wait = WHOLE / adds.iter().min().unwrap() + 2;
        if wait < 10_000 {
            tried += 1;
            found +=
                u32::from(super::leap::leap(&vec![0; k], &adds, batch, 40 * wait as u64).is_some());
        }
    }
    println!("{found} of {tried} leaps within 20 waits of the rarest domain");
    assert!(tried > 60 && found * 10 >= tried * 9);
}

fn piece(k: usize, batch: u32) -> Piece {
    let view = View {
        id: 1,
        windows: 10,
        real: 75,
        seq_len: 8,
        generations: 1,
        joining: 0,
        blocks: None,
    };
    let member = |i: usize| Member {
        name: format!("d{i:02}"),
        parts: (1 << PARTS_BITS) / k as u64,
        parts_to: (1 << PARTS_BITS) / k as u64,
        view: view.clone(),
        budget: None,
        at_cap: AtCap::Redistribute,
    };
    Piece {
        seed: 1,
        draw: Draw::Balanced,
        order: Order::Full,
        batch,
        members: (0..k).map(member).collect(),
        ramp: None,
    }
}

#[test]
fn advancing_in_two_leaps_is_advancing_in_one() {
    let piece = piece(3, 7);
    let start = vec![Domain::default(); 3];
    let all = piece.advance(&start, 0, 1000);
    let half = piece.advance(&start, 0, 437);
    assert_eq!(piece.advance(&half.domains, 437, 563).domains, all.domains);
    assert_eq!(
        all.domains
            .iter()
            .map(|domain| domain.pass * 10 + domain.index)
            .sum::<u64>(),
        7000
    );
}

#[test]
fn each_pass_is_a_permutation_and_two_differ() {
    let piece = piece(1, 5);
    let mut state = vec![Domain::default()];
    let mut windows = vec![];
    for step in 0..4 {
        windows.extend(piece.deal(&state, step).unwrap().windows);
        state = piece.advance(&state, step, 1).domains;
    }
    let (first, second) = windows.split_at(10);
    assert_ne!(first, second);
    for pass in [first, second] {
        let mut sorted = pass.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..10).collect::<Vec<u64>>());
    }
}

#[test]
fn a_cap_is_the_last_window_that_keeps_within_it() {
    for budget in 0..200 {
        let mut piece = piece(2, 3);
        piece.members[0].budget = Some(budget);
        let end = piece.advance(&[Domain::default(); 2], 0, 200).domains[0];
        let mut one_more = end;
        one_more.serve(&piece.members[0].view, 1);
        assert!(
            end.tokens() <= budget && one_more.tokens() > budget,
            "budget {budget}"
        );
        assert_eq!(end.credit, 0);
    }
}

#[test]
fn stop_ends_before_the_step_that_needs_more() {
    let mut piece = piece(2, 4);
    piece.members[1].budget = Some(75);
    piece.members[1].at_cap = AtCap::Stop;
    let advanced = piece.advance(&[Domain::default(); 2], 0, 100);
    assert_eq!(
        (advanced.steps, advanced.ended),
        (5, Some(Ended { domain: 1 }))
    );
}

#[test]
fn a_joined_pass_serves_every_window_once() {
    let mut piece = piece(1, 1);
    let mut state = vec![Domain::default()];
    let mut seen = vec![];
    for step in 0..16 {
        if step == 4 {
            piece.members[0].view = View {
                windows: 16,
                real: 120,
                generations: 2,
                joining: 2,
                ..piece.members[0].view.clone()
            };
        }
        seen.extend(piece.deal(&state, step).unwrap().windows);
        state = piece.advance(&state, step, 1).domains;
    }
    assert_eq!((state[0].pass, state[0].tokens()), (0, 120));
    seen.sort_unstable();
    assert_eq!(seen, (0..16).collect::<Vec<u64>>());
}

/// Random positive weights that change now and then, over 10,000 steps: no domain is ever a window ahead of its target,
/// and none is more than H_k - 1 windows behind. Prints the worst seen (`cargo test balanced_stays -- --nocapture`).
#[test]
fn balanced_stays_within_its_bounds() {
    let mut worst = (0.0_f64, 0.0_f64, 0.0_f64);
    for (case, &(k, batch)) in [
        (2, 1),
        (3, 7),
        (5, 64),
        (8, 1),
        (13, 512),
        (24, 33),
        (60, 1),
        (60, 64),
        (60, 1024),
    ]
    .iter()
    .cycle()
    .take(27)
    .enumerate()
    {
        let mut state = vec![Domain::default(); k];
        let harmonic: f64 = (1..=k).map(|i| 1.0 / i as f64).sum();
        let mut step = 0;
        while step < 10_000 {
            let seed = (case as u64) << 32 | step;
            let mut piece = piece(k, batch);
            let shares = random_shares(seed, k, 1 + (seed % 5) as i32);
            let total: i64 = shares.iter().sum();
            for (member, share) in piece.members.iter_mut().zip(shares) {
                member.parts = ((share as u128) << PARTS_BITS).div_euclid(total as u128) as u64;
                member.parts_to = member.parts;
            }
            let steps = (1 + crate::rng::random_u64([seed, 1], 0) % 400).min(10_000 - step);
            let (advanced, seen) = piece.advance_watching(&state, step, steps);
            for (least, most) in seen {
                let (ahead, behind) = (-least as f64 / WHOLE as f64, most as f64 / WHOLE as f64);
                assert!(
                    least > -WHOLE,
                    "case {case}, step {step}: {ahead} windows ahead"
                );
                assert!(
                    behind <= harmonic - 1.0,
                    "case {case}, step {step}, k {k}: {behind} windows behind"
                );
                worst = (
                    worst.0.max(ahead),
                    worst.1.max(behind),
                    worst.2.max(behind / (harmonic - 1.0)),
                );
            }
            state = advanced.domains;
            step += steps;
        }
    }
    println!(
        "worst: {:.4} windows ahead, {:.4} behind, {:.2} of the bound H_k - 1",
        worst.0, worst.1, worst.2
    );
}
