//! The shape of a transaction, and which documents it has. The documents are spread over the
//! partitions as in `bench/src/transactions/client.rs`.

/// How many operations a transaction has, and over how many partitions they are spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) operations: u64,
    pub(crate) partitions: u64,
}

/// The place of a document: its partition, as an index, and its id.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) partition: usize,
    pub(crate) id: String,
}

impl Shape {
    /// The places of the documents that a client creates in a round. If a round does not write to all
    /// partitions, the next round begins with another partition. The ids have the same length for up
    /// to a million rounds.
    pub(crate) fn places(self, client: u64, round: u64) -> Vec<Place> {
        let touched = self.operations.min(self.partitions);
        let place = |operation: u64| Place {
            partition: ((client + round * touched + operation) % self.partitions) as usize,
            id: format!("w-{client:04}-{round:06}-{operation:02}"),
        };
        (0..self.operations).map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_transaction_is_in_as_many_partitions_as_its_shape_allows() {
        for (operations, partitions, touched) in [(2, 1, 1), (2, 16, 2), (5, 4, 4), (20, 16, 16)] {
            let shape = Shape { operations, partitions };
            let mut seen = HashSet::new();
            for round in 0..16 {
                let places = shape.places(3, round);
                assert_eq!(places.len() as u64, operations);
                let in_partitions: HashSet<usize> = places.iter().map(|place| place.partition).collect();
                assert_eq!(in_partitions.len(), touched);
                seen.extend(in_partitions);
            }
            assert_eq!(seen.len() as u64, partitions);
        }
    }

    #[test]
    fn no_two_rounds_of_any_clients_have_the_same_document() {
        let shape = Shape { operations: 5, partitions: 4 };
        let rounds = (0..4).flat_map(|client| (0..50).map(move |round| (client, round)));
        let places = rounds.flat_map(|(client, round)| shape.places(client, round));
        let ids: HashSet<String> = places.map(|place| place.id).collect();
        assert_eq!(ids.len(), 4 * 50 * 5);
    }
}
