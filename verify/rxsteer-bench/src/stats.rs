//! Median and quartiles, and ratios within a round.

/// The middle half of a set of figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// A quarter of the figures lie below.
    pub q1: f64,
    /// Half of the figures lie below.
    pub median: f64,
    /// Three quarters of the figures lie below.
    pub q3: f64,
}

impl Quartiles {
    /// The quartiles of `figures`, with linear interpolation between neighbours; `None` if there is no figure.
    ///
    /// ```
    /// use rxsteer_bench::Quartiles;
    ///
    /// let q = Quartiles::of(&[4.0, 1.0, 3.0, 2.0, 5.0]).unwrap();
    /// assert_eq!((q.q1, q.median, q.q3), (2.0, 3.0, 4.0));
    /// ```
    pub fn of(figures: &[f64]) -> Option<Self> {
        if figures.is_empty() {
            return None;
        }
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share| between(&sorted, share);
        Some(Self { q1: at(0.25), median: at(0.5), q3: at(0.75) })
    }

    /// The quartiles of `compare(ours[round], theirs[round])` over the rounds in which both have a
    /// figure.
    pub fn of_pairs(
        ours: &[Option<f64>],
        theirs: &[Option<f64>],
        compare: impl Fn(f64, f64) -> f64,
    ) -> Option<Self> {
        let pairs = ours.iter().zip(theirs);
        let compared = pairs.filter_map(|(ours, theirs)| Some(compare((*ours)?, (*theirs)?)));
        Self::of(&compared.collect::<Vec<_>>())
    }
}

/// The point below which `share` of the sorted figures lie.
fn between(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    low + (high - low) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratios(ours: &[Option<f64>], theirs: &[Option<f64>]) -> Option<Quartiles> {
        Quartiles::of_pairs(ours, theirs, |ours, theirs| ours / theirs)
    }

    #[test]
    fn no_figure_has_no_quartiles() {
        assert_eq!(Quartiles::of(&[]), None);
        assert_eq!(ratios(&[Some(1.0), None], &[None, Some(1.0)]), None);
    }

    #[test]
    fn one_figure_is_all_three() {
        assert_eq!(Quartiles::of(&[7.0]), Some(Quartiles { q1: 7.0, median: 7.0, q3: 7.0 }));
    }

    #[test]
    fn even_count_meets_between_neighbours() {
        let q = Quartiles::of(&[40.0, 10.0, 30.0, 20.0]).unwrap();
        assert_eq!((q.q1, q.median, q.q3), (17.5, 25.0, 32.5));
    }

    #[test]
    fn median_of_ratios_is_not_the_ratio_of_medians() {
        // The machine was three times slower in some rounds. In four of five rounds ours took half the time. The
        // medians of the two columns, each taken separately, would show equal times.
        let ours = [5.0, 30.0, 15.0, 15.0, 5.0].map(Some);
        let theirs = [10.0, 15.0, 30.0, 30.0, 10.0].map(Some);
        let q = ratios(&ours, &theirs).unwrap();
        assert_eq!((q.q1, q.median, q.q3), (0.5, 0.5, 0.5));
    }

    #[test]
    fn round_without_one_of_the_two_is_left_out() {
        let ours = [Some(1.0), None, Some(3.0), Some(100.0)];
        let theirs = [Some(1.0), Some(1.0), Some(1.0), None];
        assert_eq!(ratios(&ours, &theirs).unwrap().median, 2.0);
    }
}
