//! A small chart: one line over time, with its newest value as text. For people who do not see the
//! picture, its description has the newest and the highest value.

use crate::html::{Html, list, tag};
use crate::text::time_of_day;

const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 72.0;

/// A line over time. A value is `None` where it is not known.
#[derive(Debug, Clone)]
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    pub(crate) unit: &'a str,
    pub(crate) values: &'a [Option<f64>],
    /// The end of the interval of each value, in milliseconds since 1970.
    pub(crate) ends: &'a [u64],
    /// How a value is written.
    pub(crate) format: fn(f64) -> String,
}

impl Chart<'_> {
    pub(crate) fn draw(&self) -> Html {
        let known: Vec<f64> = self.values.iter().copied().flatten().collect();
        let max = known.iter().copied().fold(0.0, f64::max);
        let shown = |value: f64| {
            format!("{}{}{}", (self.format)(value), if self.unit.is_empty() { "" } else { " " }, self.unit)
        };
        let newest_text = self.newest(shown);
        let description = format!("{}: now {newest_text}, at most {}", self.title, shown(max));
        let lines = runs(self.values).into_iter().map(|run| self.line(&run, max));
        let picture = tag("svg")
            .class("chart")
            .attr("viewBox", format!("0 0 {WIDTH} {HEIGHT}"))
            .attr("preserveAspectRatio", "none")
            .attr("role", "img")
            .attr("aria-label", description)
            .add(list(lines));
        tag("figure")
            .class("panel")
            .add(
                tag("figcaption")
                    .add(tag("span").class("panel-title").add(self.title))
                    .add(tag("span").class("panel-value").add(newest_text)),
            )
            .add(picture)
            .add(tag("p").class("panel-scale").add(format!("peak {}", shown(max))))
            .done()
    }

    /// The newest value. If it is not known, the last known value with its time: an old value must not
    /// look like a new one.
    fn newest(&self, shown: impl Fn(f64) -> String) -> String {
        let last = self.values.iter().enumerate().rev().find_map(|(index, value)| Some((index, (*value)?)));
        match last {
            None => "no data yet".to_owned(),
            Some((index, value)) if index + 1 == self.values.len() => shown(value),
            Some((index, value)) => {
                let clock = self.ends.get(index).map(|end| time_of_day(*end)).unwrap_or_default();
                let minute: String = clock.chars().take("00:00".len()).collect();
                format!("–, last {} at {minute}", shown(value))
            }
        }
    }

    /// A run of known values as an area with a line on it.
    fn line(&self, run: &[(usize, f64)], max: f64) -> Html {
        let steps = (self.values.len().max(2) - 1) as f64;
        let x = |index: usize| index as f64 / steps * WIDTH;
        // Above the highest value, 4 units of the height are empty; below the value 0, 2 units.
        let y = |value: f64| HEIGHT - 2.0 - value / max.max(f64::MIN_POSITIVE) * (HEIGHT - 6.0);
        let points: Vec<String> =
            run.iter().map(|(index, value)| format!("{:.1},{:.1}", x(*index), y(*value))).collect();
        let (first, last) = (run.first().map_or(0, |point| point.0), run.last().map_or(0, |point| point.0));
        let area = format!("{:.1},{HEIGHT} {} {:.1},{HEIGHT}", x(first), points.join(" "), x(last));
        Html::default()
            .add(tag("polygon").class("area").attr("points", area))
            .add(tag("polyline").class("line").attr("points", points.join(" ")))
    }
}

/// The runs of known values, with their indexes. An unknown value ends a run.
fn runs(values: &[Option<f64>]) -> Vec<Vec<(usize, f64)>> {
    let mut runs: Vec<Vec<(usize, f64)>> = Vec::new();
    let mut is_open = false;
    for (index, value) in values.iter().enumerate() {
        match value.filter(|value| value.is_finite()) {
            None => is_open = false,
            Some(value) if is_open => {
                if let Some(run) = runs.last_mut() {
                    run.push((index, value));
                }
            }
            Some(value) => {
                runs.push(vec![(index, value)]);
                is_open = true;
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_interrupt_the_line() {
        let values = [Some(1.0), None, Some(2.0), Some(3.0), Some(f64::NAN)];
        assert_eq!(runs(&values), [vec![(0, 1.0)], vec![(2, 2.0), (3, 3.0)]]);
    }

    #[test]
    fn the_description_of_a_chart_has_its_newest_and_highest_value() {
        let values = [None, Some(4.0), Some(2.0)];
        let format = |value| format!("{value:.0}");
        let ends = [0, 60_000, 120_000];
        let chart = Chart { title: "Requests", unit: "/s", values: &values, ends: &ends, format };
        let html = chart.draw();
        assert!(html.as_str().contains("Requests: now 2 /s, at most 4 /s"), "{html:?}");
        // Story of a bug: the last known value was shown as the value of now.
        let html = Chart { values: &[None, Some(4.0), None], ..chart.clone() }.draw();
        assert!(html.as_str().contains("Requests: now –, last 4 /s at 00:01, at most 4 /s"), "{html:?}");
        let empty = Chart { values: &[], ..chart };
        assert!(empty.draw().as_str().contains("no data yet"));
    }
}
