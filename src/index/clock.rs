//! The window's clock: the running median of recent event times.
//!
//! A stream has no clock of its own, and single pages lie about theirs. The median of the last
//! [`LENGTH`] times cannot be moved by fewer than half of them. It is used once [`KNOWN_AT`] are in.

use std::collections::VecDeque;

/// Event times that the median runs over; odd, so that the median is one of them.
pub const LENGTH: usize = 1001;

/// Event times after which the clock is known.
pub const KNOWN_AT: usize = 101;

/// A time this much ahead of the clock becomes the clock's, in seconds.
pub const MAX_AHEAD_SECONDS: u32 = 3600;

/// The running median of event times, in seconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clock {
    /// The last times in order of arrival, from `oldest` on round.
    arrived: Vec<u32>,
    oldest: usize,
    /// The same times in order of size. Times mostly grow: the oldest leaves near the front and the newest comes in
    /// near the back, which moves hardly any of those between.
    sorted: VecDeque<u32>,
}

impl Clock {
    /// The time now, once known.
    pub fn now(&self) -> Option<u32> {
        (self.sorted.len() >= KNOWN_AT).then(|| self.sorted[self.sorted.len() / 2])
    }

    /// Takes one more event time; the oldest arrival makes room.
    pub fn observe(&mut self, seconds: u32) {
        if self.arrived.len() < LENGTH {
            self.arrived.push(seconds);
        } else {
            let leaving = std::mem::replace(&mut self.arrived[self.oldest], seconds);
            self.oldest = (self.oldest + 1) % LENGTH;
            let place = self.sorted.partition_point(|&time| time < leaving);
            self.sorted.remove(place);
        }
        let place = self.sorted.partition_point(|&time| time < seconds);
        self.sorted.insert(place, seconds);
    }

    /// The times in order of arrival, to be kept with the state.
    pub fn times(&self) -> impl Iterator<Item = u32> + '_ {
        self.arrived[self.oldest..].iter().chain(&self.arrived[..self.oldest]).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_from_the_hundred_and_first_time() {
        let mut clock = Clock::default();
        for seconds in 1..=100 {
            clock.observe(seconds);
            assert_eq!(clock.now(), None);
        }
        clock.observe(101);
        assert_eq!(clock.now(), Some(51));
    }

    #[test]
    fn a_minority_cannot_move_it() {
        let mut clock = Clock::default();
        (0..1001).for_each(|i| clock.observe(1_000_000 + i));
        (0..500).for_each(|_| clock.observe(u32::MAX - 1));
        assert!(clock.now().is_some_and(|now| now < 1_001_100));
        (0..2).for_each(|_| clock.observe(u32::MAX - 1));
        assert_eq!(clock.now(), Some(u32::MAX - 1));
    }

    proptest! {
        #[test]
        fn it_is_the_median(times in proptest::collection::vec(0u32..5000, 101..2500)) {
            let mut clock = Clock::default();
            times.iter().for_each(|&time| clock.observe(time));
            let mut last: Vec<u32> = times[times.len().saturating_sub(LENGTH)..].to_vec();
            prop_assert_eq!(clock.times().collect::<Vec<_>>(), last.clone());
            last.sort_unstable();
            prop_assert_eq!(clock.now(), Some(last[last.len() / 2]));
        }
    }
}
