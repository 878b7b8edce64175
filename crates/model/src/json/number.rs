//! JSON numbers: integers exact to 64 bits, and doubles.

use std::cmp::Ordering;

/// A number: an integer of up to 64 bits, exact, or a double. Every number in a document
/// is finite. Only queries compute with infinity and NaN, as values of `Double`.
///
/// `Uint` holds only integers that do not fit into `Int`, so `Int` and `Uint` never hold
/// the same integer.
#[derive(Debug, Clone, Copy)]
pub enum Number {
    /// An integer that fits i64.
    Int(i64),
    /// An integer of at least 2^63.
    Uint(u64),
    /// Any other number. It may have no fraction: `2.0` and `1e3` are doubles.
    Double(f64),
}

impl Number {
    /// The integer as `Int` if it fits, otherwise as `Uint`.
    pub fn from_u64(value: u64) -> Self {
        i64::try_from(value).map_or(Number::Uint(value), Number::Int)
    }

    /// A finite double; `None` for infinity and NaN. Minus zero becomes zero, as the service
    /// stores it.
    pub fn from_f64(value: f64) -> Option<Self> {
        value.is_finite().then_some(Number::Double(if value == 0.0 { 0.0 } else { value }))
    }

    /// The nearest double.
    pub fn as_f64(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Uint(value) => value as f64,
            Number::Double(value) => value,
        }
    }

    /// The integer, when the number has no fraction and fits an i64.
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Number::Int(value) => Some(value),
            Number::Uint(_) => None,
            Number::Double(value) => {
                let in_range = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value);
                (in_range && value.fract() == 0.0).then_some(value as i64)
            }
        }
    }

    /// Orders by exact numeric value, which is a total order. If an integer and a double were
    /// compared as doubles, both 2^53 and 2^53 + 1 would equal the double 2^53.
    pub fn compare(self, other: Number) -> Ordering {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => a.cmp(&b),
            (Number::Uint(a), Number::Uint(b)) => a.cmp(&b),
            (Number::Int(_), Number::Uint(_)) => Ordering::Less,
            (Number::Uint(_), Number::Int(_)) => Ordering::Greater,
            (Number::Double(a), Number::Double(b)) => a.total_cmp(&b),
            (Number::Double(a), b) => b.compare_integer(a).reverse(),
            (a, Number::Double(b)) => a.compare_integer(b),
        }
    }

    /// Compares an integer with a double: first as doubles, then, when these are
    /// equal, exactly.
    fn compare_integer(self, double: f64) -> Ordering {
        let exact = |value: i128| value.cmp(&(double as i128));
        self.as_f64().total_cmp(&double).then_with(|| match self {
            Number::Int(value) => exact(i128::from(value)),
            Number::Uint(value) => exact(i128::from(value)),
            Number::Double(_) => Ordering::Equal,
        })
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.compare(*other).is_eq()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_total_order() {
        let ascending = [
            Number::Double(-1e300),
            Number::Int(i64::MIN),
            Number::Int(-1),
            Number::Double(-0.5),
            Number::Int(0),
            Number::Double(0.5),
            Number::Double(9_007_199_254_740_992.0),
            Number::Int(9_007_199_254_740_993),
            Number::Int(i64::MAX),
            Number::Uint(u64::MAX - 1),
            Number::Uint(u64::MAX),
            Number::Double(1e300),
        ];
        for (index, one) in ascending.iter().enumerate() {
            for (other_index, other) in ascending.iter().enumerate() {
                assert_eq!(one.compare(*other), index.cmp(&other_index), "{one:?} {other:?}");
            }
        }
        assert_eq!(Number::Int(2), Number::Double(2.0));
    }
}
