//! Figures that an experiment measured, each with the bound that it has to keep.

use std::fmt;

use serde_json::{Value, json};

/// A figure and its bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub what: String,
    pub measured: f64,
    pub unit: &'static str,
    pub bound: Bound,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Figure {
    /// The figure with a bound that a busy machine keeps, where the figure depends on how fast the machine is.
    #[must_use]
    pub fn relaxed(mut self, factor: f64) -> Self {
        self.bound = match (self.bound, self.unit) {
            (Bound::AtMost(most), "s" | "ms" | "µs" | "times") => Bound::AtMost(most * factor),
            (Bound::AtLeast(least), "per s" | "per second" | "of its own") => Bound::AtLeast(least / factor),
            (bound, _) => bound,
        };
        self
    }

    pub fn holds(&self) -> bool {
        match self.bound {
            Bound::AtMost(most) => self.measured <= most,
            Bound::AtLeast(least) => self.measured >= least,
        }
    }

    pub fn json(&self) -> Value {
        let (relation, bound) = self.bound.parts();
        json!({ "what": self.what, "measured": self.measured, "unit": self.unit, relation: bound })
    }
}

impl Bound {
    fn parts(self) -> (&'static str, f64) {
        match self {
            Self::AtMost(bound) => ("atMost", bound),
            Self::AtLeast(bound) => ("atLeast", bound),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bound) => write!(to, "at most {}", short(*bound)),
            Self::AtLeast(bound) => write!(to, "at least {}", short(*bound)),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {} {}, {}", self.what, short(self.measured), self.unit, self.bound)
    }
}

/// Three digits are enough to compare.
pub fn short(number: f64) -> String {
    let decimals = if number.abs() >= 100.0 || number.fract() == 0.0 { 0 } else { 2 };
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_holds_at_its_bound_and_not_beyond() {
        let figure =
            |measured, bound| Figure { what: "writes".to_owned(), measured, unit: "per second", bound };
        assert!(figure(20.0, Bound::AtMost(20.0)).holds() && !figure(20.1, Bound::AtMost(20.0)).holds());
        assert!(figure(0.5, Bound::AtLeast(0.5)).holds() && !figure(0.4, Bound::AtLeast(0.5)).holds());
        assert!(!figure(f64::NAN, Bound::AtMost(1.0)).holds(), "what is no number holds nothing");
        let late = Figure { unit: "ms", ..figure(150.0, Bound::AtMost(100.0)) };
        assert!(!late.holds() && late.clone().relaxed(2.0).holds() && !late.relaxed(1.4).holds());
        assert!(!figure(20.1, Bound::AtMost(20.0)).relaxed(9.0).holds(), "writes are no time");
        assert!(Figure { unit: "of its own", ..figure(0.4, Bound::AtLeast(0.5)) }.relaxed(2.0).holds());
        let text = figure(1234.56, Bound::AtMost(0.25)).to_string();
        assert_eq!(text, "writes: 1235 per second, at most 0.25");
    }
}
