//! The search: Nelder and Mead's simplex over logarithms, without randomness.
//!
//! J. A. Nelder, R. Mead, "A simplex method for function minimization", The Computer Journal 7 (1965), with their
//! coefficients. The values are positive and of different magnitudes, so the search uses their logarithms. There
//! are few values and few kinds of steps, so a crate would bring more code than this file has.

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Minimum {
    pub(crate) values: Vec<f64>,
    pub(crate) objective: f64,
    /// The number of evaluations of the objective.
    pub(crate) evaluations: u32,
}

/// The distance of the first simplex's corners from the start along each axis: a tenth.
const FIRST_STEP: f64 = 0.1;

/// Values have this many digits, so that the committed file is readable. The objective is evaluated only with such
/// values.
const DIGITS: i32 = 4;

/// A corner of the simplex: logarithms of the values, and the objective there.
#[derive(Clone, Debug)]
struct Corner {
    point: Vec<f64>,
    value: f64,
}

/// The objective, with the number of evaluations.
struct Evaluator<F> {
    objective: F,
    evaluations: u32,
}

impl<F> Evaluator<F> {
    fn at<E>(&mut self, point: Vec<f64>) -> Result<Corner, E>
    where
        F: FnMut(&[f64]) -> Result<f64, E>,
    {
        self.evaluations += 1;
        let value = (self.objective)(&values(&point))?;
        Ok(Corner { point, value })
    }
}

/// Searches values near `start` that minimise `objective`, until all corners are within `nearness` of each other
/// (as a share of the values), or until `most` evaluations were made.
///
/// # Errors
/// The first error of the objective.
pub(crate) fn minimize<E>(
    start: &[f64],
    nearness: f64,
    most: u32,
    objective: impl FnMut(&[f64]) -> Result<f64, E>,
) -> Result<Minimum, E> {
    let mut evaluator = Evaluator { objective, evaluations: 0 };
    let first: Vec<f64> = start.iter().map(|value| value.ln()).collect();
    let mut corners = vec![evaluator.at(first.clone())?];
    for axis in 0..start.len() {
        let mut point = first.clone();
        point[axis] += FIRST_STEP;
        corners.push(evaluator.at(point)?);
    }
    loop {
        // Corners with equal values stay in their order, so the same search always takes the same steps.
        corners.sort_by(|a, b| a.value.total_cmp(&b.value));
        if extent(&corners) < nearness || evaluator.evaluations >= most {
            break;
        }
        step(&mut corners, &mut evaluator)?;
    }
    let best = corners.swap_remove(0);
    let evaluations = evaluator.evaluations;
    Ok(Minimum { values: values(&best.point), objective: best.value, evaluations })
}

/// Replaces the worst corner, which is the last, by a better one, or moves all corners towards the best.
fn step<E, F>(corners: &mut [Corner], evaluator: &mut Evaluator<F>) -> Result<(), E>
where
    F: FnMut(&[f64]) -> Result<f64, E>,
{
    let last = corners.len() - 1;
    let centre = centre(&corners[..last]);
    let worst = corners[last].clone();
    let reflected = evaluator.at(beyond(&centre, &worst.point, 1.0))?;
    if reflected.value < corners[0].value {
        let expanded = evaluator.at(beyond(&centre, &worst.point, 2.0))?;
        corners[last] = if expanded.value < reflected.value { expanded } else { reflected };
        return Ok(());
    }
    if last > 0 && reflected.value < corners[last - 1].value {
        corners[last] = reflected;
        return Ok(());
    }
    let side = if reflected.value < worst.value { 0.5 } else { -0.5 };
    let contracted = evaluator.at(beyond(&centre, &worst.point, side))?;
    if contracted.value < worst.value.min(reflected.value) {
        corners[last] = contracted;
        return Ok(());
    }
    let best = corners[0].point.clone();
    for corner in &mut corners[1..] {
        *corner = evaluator.at(beyond(&best, &corner.point, -0.5))?;
    }
    Ok(())
}

/// The mean of the corners.
fn centre(corners: &[Corner]) -> Vec<f64> {
    let axes = corners[0].point.len();
    let mean = |axis: usize| {
        corners.iter().map(|corner| corner.point[axis]).sum::<f64>() / corners.len() as f64
    };
    (0..axes).map(mean).collect()
}

/// The point beyond `centre`, opposite `from`, at `factor` times the distance.
fn beyond(centre: &[f64], from: &[f64], factor: f64) -> Vec<f64> {
    centre.iter().zip(from).map(|(centre, from)| centre + factor * (centre - from)).collect()
}

/// The largest distance of a corner from the best corner along one axis.
fn extent(corners: &[Corner]) -> f64 {
    let best = &corners[0].point;
    let away = corners[1..].iter().flat_map(|corner| corner.point.iter().zip(best));
    away.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// The values of a point, rounded to [`DIGITS`] digits.
fn values(point: &[f64]) -> Vec<f64> {
    point.iter().map(|log| rounded(log.exp())).collect()
}

fn rounded(value: f64) -> f64 {
    let digits = DIGITS as usize - 1;
    // The conversion uses text, since text gives the nearest number to the digits, and powers of ten do not.
    format!("{value:.digits$e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn values_of_different_sizes_are_found() {
        let objective = |values: &[f64]| -> Result<f64, Infallible> {
            let (a, b) = (values[0] / 9600.0 - 1.0, values[1] / 0.035 - 1.0);
            Ok(a * a + 3.0 * b * b + a * b)
        };
        let found = minimize(&[2000.0, 1.0], 1e-4, 500, objective).unwrap();
        assert!((found.values[0] / 9600.0 - 1.0).abs() < 1e-3, "{found:?}");
        assert!((found.values[1] / 0.035 - 1.0).abs() < 1e-3, "{found:?}");
        assert_eq!(found, minimize(&[2000.0, 1.0], 1e-4, 500, objective).unwrap());
    }

    #[test]
    fn one_value_is_found() {
        let objective =
            |values: &[f64]| -> Result<f64, Infallible> { Ok((values[0] - 70.0).abs()) };
        let found = minimize(&[1.0], 1e-4, 300, objective).unwrap();
        assert!((found.values[0] - 70.0).abs() < 0.1, "{found:?}");
    }

    #[test]
    fn search_ends_after_the_evaluations_it_may_make() {
        // There is no minimum: the search goes downhill for ever.
        let objective = |values: &[f64]| -> Result<f64, Infallible> { Ok(1.0 / values[0]) };
        assert!(minimize(&[1.0], 1e-9, 40, objective).unwrap().evaluations <= 42);
    }

    #[test]
    fn values_have_four_digits() {
        assert_eq!(rounded(9612.345), 9612.0);
        assert_eq!(rounded(0.034_567_8), 0.034_57);
    }
}
