//! The order in which the compared servers, clients or providers are measured.

/// The order in one repeat. Each repeat begins with another element.
pub fn rotated<T: Clone>(compared: &[T], repeat: usize) -> Vec<T> {
    let mut rotated = compared.to_vec();
    rotated.rotate_left(repeat % compared.len().max(1));
    rotated
}
