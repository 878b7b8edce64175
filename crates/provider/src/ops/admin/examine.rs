//! Examines an account and a container for a tool. Makes the checks that opening a provider makes, and
//! looks for settings that make a provider more expensive than necessary. Only reads: a missing
//! container is not created.

use std::time::Duration;

use perihelion_client::{Client, Container, ContainerProperties, Error, Throughput, TimeToLive};

use crate::failure::Failure;
use crate::options::check::Check;
use crate::store::layout_version::{ContainerVersion, LAYOUT_VERSION, check_version};
use crate::store::{INDEXED_PATHS, layout, preflight, read_layout_in_transaction};

/// How long the question about distributed transactions may take. An account that refuses them
/// answers at once.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Request units of the smallest workflow, as `tests/it/cost.rs` counts them.
const SMALLEST_WORKFLOW_RU: u32 = 60;

/// Checks the account, then the container. The most important checks come first.
pub(crate) async fn run(client: &Client, database: &str, container: &str) -> Vec<Check> {
    let account = client.account();
    let regions: Vec<String> = account.write_regions.iter().map(ToString::to_string).collect();
    let mut checks = vec![Check::of("write regions", preflight::check_account(&account), regions.join(", "))];
    if let Err(objection) = preflight::check_names(database, container) {
        checks.push(Check::of("container", Err(objection), String::new()));
        return checks;
    }
    let handle = client.database(database).container(container);
    match handle.properties().await {
        Ok(properties) => {
            checks.push(partition_count(&handle).await);
            checks.extend(settings(&handle, &properties));
            checks.push(throughput(client, &handle).await);
            checks.extend(documents(client, &handle, &properties).await);
        }
        Err(error) if error.is_not_found() => checks.push(Check::warning(
            "container",
            format!("{database}/{container} does not exist"),
            "With the account's key, a program creates it when it opens the provider. With Entra ID, create it \
             first: docs/provider.md has the commands",
        )),
        Err(error) => checks.push(Check::unreadable("container", &error.into())),
    }
    checks
}

/// The check that shows the name of the container and the number of its physical partitions.
async fn partition_count(container: &Container) -> Check {
    let name = format!("{}/{}", container.database_name(), container.name());
    match container.feed_ranges().await {
        Ok(ranges) if ranges.len() == 1 => Check::ok("container", format!("{name}, 1 physical partition")),
        Ok(ranges) => Check::ok("container", format!("{name}, {} physical partitions", ranges.len())),
        Err(error) => Check::unreadable("container", &error.into()),
    }
}

/// The checks of the container's settings.
fn settings(container: &Container, properties: &ContainerProperties) -> [Check; 3] {
    let key = preflight::check_partition_key(container, properties);
    [
        Check::of("partition key", key, properties.partition_key.paths.join(", ")),
        time_to_live(container, properties),
        indexes(container, properties),
    ]
}

fn time_to_live(container: &Container, properties: &ContainerProperties) -> Check {
    let subject = "time to live";
    match (preflight::check_ttl(container, properties), properties.ttl) {
        (Err(objection), _) => Check::of(subject, Err(objection), String::new()),
        (Ok(()), Some(TimeToLive::PerItem | TimeToLive::Seconds(_))) => {
            Check::ok(subject, "on, without a default")
        }
        (Ok(()), None) => Check::warning(
            subject,
            "off: tombstones and sessions stay, and retention is left to the reconciler",
            "A provider turns it on if its credential permits that. Otherwise set the container's default \
             time to live to -1",
        ),
    }
}

fn indexes(container: &Container, properties: &ContainerProperties) -> Check {
    let subject = "indexing policy";
    if let Err(objection) = preflight::check_indexes(container, properties) {
        return Check::of(subject, Err(objection), String::new());
    }
    let paths: Vec<&str> = INDEXED_PATHS.iter().map(|path| path.trim_end_matches("/?")).collect();
    let missing = preflight::not_indexed(properties, &paths);
    if !missing.is_empty() {
        return Check::warning(
            subject,
            format!("does not index {}: some polls and lists read every document", missing.join(", ")),
            "Index the paths listed in docs/provider.md",
        );
    }
    let policy = properties.indexing_policy.as_ref();
    let is_every_path_indexed =
        policy.is_none_or(|it| it.included_paths.iter().any(|path| path.path == "/*"));
    match is_every_path_indexed {
        true => Check::warning(
            subject,
            "indexes every path: every write costs more than it must",
            "Index only the paths listed in docs/provider.md. The container can be used meanwhile",
        ),
        false => Check::ok(subject, format!("has the {} paths by which work is found", INDEXED_PATHS.len())),
    }
}

async fn throughput(client: &Client, container: &Container) -> Check {
    let subject = "throughput";
    let found = async {
        match container.throughput().await? {
            Some(own) => Ok::<_, Error>(Some((own, ""))),
            None => {
                let shared = client.database(container.database_name()).throughput().await?;
                Ok(shared.map(|shared| (shared, ", shared by the containers of the database")))
            }
        }
    };
    let (provisioned, sharing_note) = match found.await {
        Ok(Some(found)) => found,
        Ok(None) => return Check::ok(subject, "serverless, or not shown to this credential"),
        Err(error) if error.status().is_some_and(|status| status.code == 403) => {
            return Check::ok(subject, "not shown to this credential");
        }
        Err(error) => return Check::unreadable(subject, &error.into()),
    };
    let (text, units) = match provisioned.throughput {
        Throughput::Manual(units) => (format!("{units} RU/s"), units),
        Throughput::Autoscale { max } => (format!("up to {max} RU/s (autoscale)"), max),
        // The enum of the client may grow.
        _ => ("of an unknown kind".to_owned(), 0),
    };
    let workflows = units / SMALLEST_WORKFLOW_RU;
    Check::ok(
        subject,
        format!("{text}{sharing_note}: at most {workflows} of the smallest workflows per second"),
    )
}

/// The checks that read documents: the layout, and whether there are distributed transactions.
async fn documents(client: &Client, container: &Container, properties: &ContainerProperties) -> [Check; 2] {
    [layout_check(container, properties).await, transactions(client, container).await]
}

async fn layout_check(container: &Container, properties: &ContainerProperties) -> Check {
    let subject = "layout version";
    let found = async {
        let layout = layout::detect(container, properties).await?;
        Ok::<_, Failure>((layout, ContainerVersion::find(container).await?))
    };
    match found.await {
        Ok((layout, version)) => {
            let checked = layout
                .check(container, false)
                .and_then(|()| check_version(container, version, LAYOUT_VERSION));
            Check::of(
                subject,
                checked,
                format!("{version}; this program reads versions up to {LAYOUT_VERSION}"),
            )
        }
        Err(failure) => Check::unreadable(subject, &failure),
    }
}

async fn transactions(client: &Client, container: &Container) -> Check {
    let subject = "distributed transactions";
    match read_layout_in_transaction(client, container, TRANSACTION_TIMEOUT).await {
        Ok(()) => Check::ok(subject, "offered; a provider uses them with CrossInstance::Auto"),
        Err(Failure::Storage(error)) if error.is_unsupported() => {
            Check::ok(subject, "not offered: messages between workflows go through the outbox, as by default")
        }
        Err(failure) => Check::warning(
            subject,
            format!("no clear answer: {}", failure.summary()),
            "The outbox, which is the default for accounts, works without them",
        ),
    }
}
