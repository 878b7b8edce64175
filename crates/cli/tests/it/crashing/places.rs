//! `Places`: the places of the documents of a test, in eight partitions of three containers. The eight
//! partition keys are in eight different physical partitions.

use perihelion_client::{Client, Container, ContainerProperties};
use perihelion_testkit::Random;

const CONTAINERS: [&str; 3] = ["first", "second", "third"];
const PARTITIONS: usize = 8;
/// The physical partitions of each container, for the command line.
pub(super) const PARTITIONS_TEXT: &str = "8";

/// The containers as one client knows them, and the partition keys.
#[derive(Clone)]
pub(crate) struct Places {
    containers: [Container; 3],
    keys: Vec<String>,
}

impl Places {
    /// Creates the containers.
    pub(crate) async fn create(client: &Client) -> Places {
        let database = client.create_database("bank").await.expect("a database");
        for name in CONTAINERS {
            database.create_container(&ContainerProperties::new(name, "/pk")).await.expect("a container");
        }
        let space = database.container(CONTAINERS[0]).key_space().await.expect("the ranges");
        let ranges = space.feed_ranges();
        assert_eq!(ranges.len(), PARTITIONS);
        let mut keys: Vec<Option<String>> = vec![None; PARTITIONS];
        for name in (0..).map(|number| format!("p{number}")) {
            let key_range = space.range_of(name.as_str());
            let at = ranges.iter().position(|range| range.contains(&key_range)).expect("a range");
            keys[at].get_or_insert(name);
            if keys.iter().all(Option::is_some) {
                break;
            }
        }
        Places { keys: keys.into_iter().flatten().collect(), ..Places::of(client, &[]) }
    }

    /// The same places for another client.
    pub(crate) fn for_client(&self, client: &Client) -> Places {
        Places::of(client, &self.keys)
    }

    fn of(client: &Client, keys: &[String]) -> Places {
        let database = client.database("bank");
        Places { containers: CONTAINERS.map(|name| database.container(name)), keys: keys.to_vec() }
    }

    /// The container and the partition key of a document with this number. Any 24 consecutive
    /// numbers are in 24 different places.
    pub(crate) fn place(&self, number: u32) -> (&Container, &str) {
        let number = number as usize;
        let key = &self.keys[(number / CONTAINERS.len()) % PARTITIONS];
        (&self.containers[number % CONTAINERS.len()], key)
    }
}

/// A list of `least` to `most` different numbers below `bound`.
pub(crate) fn distinct_numbers(random: &mut Random, least: usize, most: usize, bound: u32) -> Vec<u32> {
    let count = least + random.index(most - least + 1);
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let number = random.below(bound.into()) as u32;
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    numbers
}
