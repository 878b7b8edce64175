//! Preflight checks of the names, the account and the container, once when a container is
//! opened, and whenever a tool examines it. An objection says what is wrong and what to do.

use perihelion_client::{
    AccountView, Container, ContainerProperties, Error, IndexingMode, IndexingPolicy, TimeToLive,
};

use crate::failure::{Failure, Objection};

/// The paths that fetches, polls and the reconciler order by. The service refuses an order
/// without an index.
const ORDERED_BY: [&str; 3] = ["/visibleAt", "/enq", "/madeAt"];

/// The status of a request that the identity is not allowed to make.
const FORBIDDEN: u16 = 403;

/// The most characters in the name of a database or a container.
const NAME_MAX: usize = 255;

/// Refuses names that the service would refuse. Some of them would break the signature,
/// and the service would report a wrong key instead.
pub(crate) fn check_names(database: &str, container: &str) -> Result<(), Objection> {
    for (what, name) in [("database", database), ("container", container)] {
        let is_invalid = name.is_empty()
            || name.chars().count() > NAME_MAX
            || name.contains(['/', '\\', '#', '?'])
            || name.contains(char::is_control)
            || name.ends_with(' ');
        if is_invalid {
            return Err(Objection::new(
                format!("{name:?} cannot be the name of a {what}"),
                format!(
                    "A name has 1 to {NAME_MAX} characters, none of them / \\ # ? or a control character, and no \
                     space at the end"
                ),
            ));
        }
    }
    Ok(())
}

/// Refuses an account with several write regions: two regions may each accept a write
/// under the same etag, and one of the writes is lost later. No lock and no commit would
/// be safe.
pub(crate) fn check_account(account: &AccountView) -> Result<(), Objection> {
    if !account.is_multi_write {
        return Ok(());
    }
    let regions: Vec<String> = account.write_regions.iter().map(ToString::to_string).collect();
    Err(Objection::new(
        format!(
            "the account takes writes in every region ({}): an etag protects nothing there, because two regions \
             may accept conflicting writes and drop one of them later, and with it a turn of a workflow",
            regions.join(", ")
        ),
        "Turn multiple write locations off for this account (enableMultipleWriteLocations), or use an account \
         with one write region; reads may go to as many regions as you like",
    ))
}

/// Refuses an account whose reads may miss writes of their own session: a process would not see
/// its own turns and messages.
pub(crate) fn check_consistency(account: &AccountView) -> Result<(), Objection> {
    if account.is_session_consistent {
        return Ok(());
    }
    Err(Objection::new(
        "the account's default consistency is weaker than Session: a process may not see what it has written \
         itself, and would run old turns again or miss messages",
        "Set the default consistency of the account to Session",
    ))
}

/// Refuses a container with another partition key: it belongs to another program.
pub(crate) fn check_partition_key(
    container: &Container,
    properties: &ContainerProperties,
) -> Result<(), Objection> {
    if properties.partition_key.paths == ["/instanceId"] {
        return Ok(());
    }
    Err(Objection::new(
        format!(
            "cannot open the container {}: its partition key is {}, the provider needs /instanceId",
            name(container),
            properties.partition_key.paths.join(", ")
        ),
        "Use another container name; a missing container is created",
    ))
}

/// Refuses a container that removes documents by a default time to live.
pub(crate) fn check_ttl(container: &Container, properties: &ContainerProperties) -> Result<(), Objection> {
    let Some(TimeToLive::Seconds(seconds)) = properties.ttl else { return Ok(()) };
    Err(Objection::new(
        format!(
            "the container {} removes every document {seconds} seconds after its last write: workflows that wait \
             longer would vanish",
            name(container)
        ),
        "Set its default time to live to -1 (on, no default)",
    ))
}

/// Refuses a container without the indexes for [`ORDERED_BY`].
pub(crate) fn check_indexes(
    container: &Container,
    properties: &ContainerProperties,
) -> Result<(), Objection> {
    let missing = not_indexed(properties, &ORDERED_BY);
    if missing.is_empty() {
        return Ok(());
    }
    Err(Objection::new(
        format!(
            "the container {} does not index {}, by which work is found",
            name(container),
            missing.join(" and ")
        ),
        "Index every path, which is what a container does by default, or the paths listed in docs/provider.md",
    ))
}

/// The paths among `paths` that the container does not index.
pub(crate) fn not_indexed<'p>(properties: &ContainerProperties, paths: &[&'p str]) -> Vec<&'p str> {
    match &properties.indexing_policy {
        Some(policy) => paths.iter().copied().filter(|path| !is_indexed(policy, path)).collect(),
        None => Vec::new(),
    }
}

/// Whether the policy indexes a path: indexing is on, and the path is included by name, or
/// all paths are included and the path is not excluded by name.
fn is_indexed(policy: &IndexingPolicy, path: &str) -> bool {
    let spellings = [format!("{path}/?"), format!("{path}/*")];
    let (includes, excludes) = (&policy.included_paths, &policy.excluded_paths);
    let is_listed_by_name =
        |paths: &[perihelion_client::IndexPath]| paths.iter().any(|it| spellings.contains(&it.path));
    let is_every_path_included = includes.iter().any(|it| it.path == "/*");
    policy.indexing_mode != IndexingMode::None
        && (is_listed_by_name(includes) || (is_every_path_included && !is_listed_by_name(excludes)))
}

/// Turns time to live on if it is off. Returns whether it is on. If the service refuses, as
/// it does without permission, a warning is logged.
pub(crate) async fn switch_ttl_on(
    container: &Container,
    mut properties: ContainerProperties,
) -> Result<bool, Failure> {
    if properties.ttl.is_some() {
        return Ok(true);
    }
    properties.ttl = Some(TimeToLive::PerItem);
    match container.replace_properties(&properties).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_transient() => Err(error.into()),
        Err(error) => {
            tracing::warn!(
                container = name(container), %error,
                "time to live is off and could not be turned on: tombstones and heartbeats stay, and retention is \
                 left to the reconciler. Set the container's default time to live to -1"
            );
            Ok(false)
        }
    }
}

/// The failure to create a missing container. If the credential may not create it, the text
/// says what to do. An Entra ID identity can never create a container, because its data
/// roles cover documents only.
pub(crate) fn creation_failure(database: &str, container: &str, error: Error) -> Failure {
    match error.status() {
        Some(status) if status.code == FORBIDDEN && !error.is_transient() => Failure::Refused(format!(
            "the container {database}/{container} does not exist, and the credential may not create it: {error}. \
             Create it first (partition key /instanceId, default time to live -1; the commands are in \
             docs/provider.md), or open it once with the account's key"
        )),
        _ => error.into(),
    }
}

fn name(container: &Container) -> String {
    format!("{}/{}", container.database_name(), container.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// People who create a container by hand copy the list from `docs/provider.md`.
    #[test]
    fn the_manual_lists_the_indexed_paths() {
        let manual = include_str!("../../../../docs/provider.md");
        for path in super::super::INDEXED_PATHS {
            assert!(
                manual.contains(&format!(r#"{{"path": "{path}"}}"#)),
                "{path} is not in docs/provider.md"
            );
        }
    }

    #[test]
    fn names_that_the_service_refuses_are_refused_before_any_request() {
        for good in ["a", "ünï cödé", "a.b-c_d~e", &"x".repeat(NAME_MAX)] {
            assert!(check_names(good, good).is_ok(), "{good}");
        }
        for bad in ["", "a/b", "a\\b", "a#", "a?b", "a ", "a\n", &"x".repeat(NAME_MAX + 1)] {
            for (database, container, what) in [(bad, "c", "database"), ("d", bad, "container")] {
                let why = check_names(database, container).expect_err(bad).finding;
                assert!(why.contains(what) && why.contains(&format!("{bad:?}")), "{why}");
            }
        }
    }

    #[test]
    fn a_path_is_indexed_by_name_or_by_a_wildcard_unless_it_is_excluded() {
        let check = |policy: IndexingPolicy, expected: bool| {
            assert_eq!(is_indexed(&policy, "/enq"), expected, "{policy:?}");
        };
        check(IndexingPolicy::default(), true);
        check(IndexingPolicy::none(), false);
        check(IndexingPolicy::default().with_excluded("/enq/?"), false);
        check(IndexingPolicy::default().with_excluded("/enqueued/?"), true);
        check(IndexingPolicy::only(["/enq/?"]), true);
        check(IndexingPolicy::only(["/enq/*"]), true);
        check(IndexingPolicy::only(["/type/?"]), false);
    }
}
