//! `Axis`: maps times to places on a timeline. Long gaps in which nothing happened are *folded*: they
//! get a short piece of the axis, whatever their length, so that the events stay visible.

/// The share of the width that a folded gap gets.
const FOLD_SHARE: f64 = 0.03;

/// The most folds, so that folds never fill the axis.
const FOLDS_MAX: usize = 8;

/// A gap is folded if it takes more than this share of the time that is not folded.
const GAP_SHARE: f64 = 0.3;

/// The shortest gap that is folded. Shorter gaps are easy to read as they are.
const GAP_MS_MIN: u64 = 1000;

/// A map from times to positions between 0 and 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    begin_ms: u64,
    end_ms: u64,
    folds: Vec<Fold>,
}

/// A gap that is drawn shorter than it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fold {
    pub(crate) begin_ms: u64,
    pub(crate) end_ms: u64,
}

impl Fold {
    pub(crate) fn length_ms(self) -> u64 {
        self.end_ms - self.begin_ms
    }
}

impl Axis {
    /// The axis of these times. Without `is_folding` every gap keeps its length.
    pub(crate) fn new(times: &[u64], is_folding: bool) -> Axis {
        let mut times = times.to_vec();
        times.sort_unstable();
        times.dedup();
        let (begin_ms, last) = (times.first().copied().unwrap_or(0), times.last().copied().unwrap_or(0));
        let mut gaps: Vec<Fold> =
            times.windows(2).map(|pair| Fold { begin_ms: pair[0], end_ms: pair[1] }).collect();
        gaps.sort_by_key(|gap| std::cmp::Reverse(gap.length_ms()));
        let mut left = last - begin_ms;
        let mut folds = Vec::new();
        for gap in gaps.iter().take(FOLDS_MAX) {
            let length = gap.length_ms();
            // A timeline with only one gap shows nothing else, so this gap is not folded.
            let is_long = length as f64 > left as f64 * GAP_SHARE && length >= GAP_MS_MIN && length < left;
            if !is_folding || !is_long {
                break;
            }
            left -= length;
            folds.push(*gap);
        }
        folds.sort_by_key(|fold| fold.begin_ms);
        Axis { begin_ms, end_ms: last.max(begin_ms + 1), folds }
    }

    pub(crate) fn begin_ms(&self) -> u64 {
        self.begin_ms
    }

    pub(crate) fn folds(&self) -> &[Fold] {
        &self.folds
    }

    /// The position of a time. Times outside the axis are at its ends.
    pub(crate) fn position(&self, ms: u64) -> f64 {
        let ms = ms.clamp(self.begin_ms, self.end_ms);
        let folded: u64 = self.folds.iter().map(|fold| fold.length_ms()).sum();
        let unfolded = (self.end_ms - self.begin_ms - folded).max(1);
        let mut unfolded_passed = ms - self.begin_ms;
        let mut folds_passed = 0.0;
        for fold in self.folds.iter().filter(|fold| fold.begin_ms < ms) {
            let passed = ms.min(fold.end_ms) - fold.begin_ms;
            unfolded_passed -= passed;
            folds_passed += passed as f64 / fold.length_ms() as f64;
        }
        let unfolded_share = 1.0 - self.folds.len() as f64 * FOLD_SHARE;
        let share = unfolded_passed as f64 / unfolded as f64 * unfolded_share;
        (share + folds_passed * FOLD_SHARE).clamp(0.0, 1.0)
    }

    /// The time between two labels of the axis, if it has about `count` labels.
    pub(crate) fn step_ms(&self, count: u64) -> u64 {
        let folded: u64 = self.folds.iter().map(|fold| fold.length_ms()).sum();
        round_step((self.end_ms - self.begin_ms - folded) / count.max(1))
    }

    /// Times for the labels of the axis: round, and none within a fold.
    pub(crate) fn ticks(&self, count: u64) -> Vec<u64> {
        let step = self.step_ms(count);
        let mut ticks: Vec<u64> = Vec::new();
        let mut next = self.begin_ms;
        // All pieces between the folds have the same step, and each fold adds at most one tick. So
        // there are about `count + FOLDS_MAX` ticks, and the limit is twice that.
        while next <= self.end_ms && ticks.len() < (count as usize + FOLDS_MAX) * 2 {
            match self.folds.iter().find(|fold| fold.begin_ms < next && next < fold.end_ms) {
                Some(fold) => next = fold.end_ms,
                None => {
                    ticks.push(next);
                    next += step;
                }
            }
        }
        ticks
    }
}

/// The smallest round number of milliseconds that is at least `ms`.
fn round_step(ms: u64) -> u64 {
    const STEPS: [u64; 24] = [
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000,
        600_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 43_200_000, 86_400_000,
    ];
    STEPS.into_iter().find(|step| *step >= ms).unwrap_or_else(|| ms.div_ceil(86_400_000) * 86_400_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_gap_gets_a_short_piece_of_the_axis() {
        let day = 86_400_000;
        let times = [0, 100, 200, day, day + 100];
        let axis = Axis::new(&times, true);
        assert_eq!(axis.folds(), [Fold { begin_ms: 200, end_ms: day }]);
        let [before, after] = [axis.position(200), axis.position(day)];
        assert!((after - before - FOLD_SHARE).abs() < 1e-9, "{before} {after}");
        assert!(before > 0.6, "the events have most of the width: {before}");
        assert_eq!((axis.position(0), axis.position(day + 100)), (0.0, 1.0));
        assert!(Axis::new(&times, false).folds().is_empty());
        assert!(axis.ticks(6).iter().all(|tick| *tick <= 200 || *tick >= day));
    }

    #[test]
    fn positions_never_decrease_and_stay_on_the_axis() {
        let times: Vec<u64> = (0..200u64).map(|n| n * n * n * 7).collect();
        let axis = Axis::new(&times, true);
        let positions: Vec<f64> = times.iter().map(|time| axis.position(*time)).collect();
        assert!(positions.windows(2).all(|pair| pair[0] <= pair[1]), "{positions:?}");
        assert!(positions.iter().all(|position| (0.0..=1.0).contains(position)));
        assert_eq!(axis.position(u64::MAX), 1.0);
    }

    #[test]
    fn the_only_gap_is_not_folded() {
        assert!(Axis::new(&[0, 86_400_000], true).folds().is_empty());
        assert_eq!(Axis::new(&[], true).position(7), 1.0);
        assert_eq!(Axis::new(&[5, 5], true).position(5), 0.0);
    }
}
