//! The cursor over many steps.

use super::balanced::{Bulk, watch};
use super::step::Step;
use super::{Domain, Draw, Ended, Piece};

/// Where `advance` came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advanced {
    pub domains: Vec<Domain>,
    /// Steps made; fewer than asked for only if the run ends.
    pub steps: u64,
    pub ended: Option<Ended>,
}

impl Piece {
    /// The state after at most `steps` steps from `step`, all of which lie in this piece.
    pub fn advance(&self, domains: &[Domain], step: u64, steps: u64) -> Advanced {
        self.walk(domains, step, steps, None)
    }

    /// As `advance`, and the least and most credit of each domain at the ends of the steps.
    pub fn advance_watching(
        &self,
        domains: &[Domain],
        step: u64,
        steps: u64,
    ) -> (Advanced, Vec<(i64, i64)>) {
        let mut seen: Vec<(i64, i64)> = domains
            .iter()
            .map(|domain| (domain.credit, domain.credit))
            .collect();
        (self.walk(domains, step, steps, Some(&mut seen)), seen)
    }

    fn walk(
        &self,
        domains: &[Domain],
        step: u64,
        steps: u64,
        mut seen: Option<&mut Vec<(i64, i64)>>,
    ) -> Advanced {
        let mut now = domains.to_vec();
        let mut done = 0;
        while done < steps {
            let (mut next, made) =
                match self.in_bulk(&now, step + done, steps - done, seen.as_deref_mut()) {
                    Some(bulk) => bulk,
                    None => (now.clone(), 0),
                };
            if made == 0
                && let Err(ended) = self.one_step(&mut next, step + done)
            {
                return Advanced {
                    domains: now,
                    steps: done,
                    ended: Some(ended),
                };
            }
            if let Some(seen) = seen.as_deref_mut() {
                watch(seen, next.iter().map(|domain| domain.credit));
            }
            now = next;
            done += made.max(1);
        }
        Advanced {
            domains: now,
            steps: done,
            ended: None,
        }
    }

    /// Makes one step; returns the windows each domain was given. `domains` is spoilt on an error.
    pub fn one_step(&self, domains: &mut [Domain], step: u64) -> Result<Vec<u64>, Ended> {
        let mut open = Step::open(self, domains, step)?;
        open.deal(step)?;
        let counts = open.counts;
        self.serve(domains, &counts);
        Ok(counts)
    }

    fn serve(&self, domains: &mut [Domain], counts: &[u64]) {
        for ((domain, member), &count) in domains.iter_mut().zip(&self.members).zip(counts) {
            domain.serve(&member.view, count);
        }
    }

    /// Steps in which weights are constant and no cap changes anything: the state after them and how many, if any.
    fn in_bulk(
        &self,
        domains: &[Domain],
        step: u64,
        steps: u64,
        seen: Option<&mut Vec<(i64, i64)>>,
    ) -> Option<(Vec<Domain>, u64)> {
        if self.ramp.is_some() || self.draw != Draw::Balanced {
            return None;
        }
        let mut next = domains.to_vec();
        let open = Step::open(self, &mut next, step).ok()?;
        let owed: Vec<usize> = (0..self.members.len())
            .filter(|&i| open.shares[i] > 0)
            .collect();
        let adds: Vec<i64> = owed
            .iter()
            .map(|&i| open.shares[i] * i64::from(self.batch))
            .collect();
        let limits: Vec<u64> = owed.iter().map(|&i| open.free(i)).collect();
        let mut credits: Vec<i64> = owed.iter().map(|&i| open.domains[i].credit).collect();
        let mut watched: Vec<(i64, i64)> = credits.iter().map(|&credit| (credit, credit)).collect();
        let mut given = vec![0; owed.len()];
        let mut bulk = Bulk {
            credits: &mut credits,
            adds: &adds,
            batch: u64::from(self.batch),
            limits: &limits,
            counts: &mut given,
            seen: seen.is_some().then_some(&mut watched[..]),
        };
        let made = bulk.run(steps);
        if made == 0 {
            return None;
        }
        let mut counts = vec![0; domains.len()];
        for ((&i, credit), given) in owed.iter().zip(credits).zip(given) {
            next[i].credit = credit;
            counts[i] = given;
        }
        if let Some(seen) = seen {
            for (&i, (least, most)) in owed.iter().zip(watched) {
                seen[i] = (seen[i].0.min(least), seen[i].1.max(most));
            }
        }
        self.serve(&mut next, &counts);
        Some((next, made))
    }
}
