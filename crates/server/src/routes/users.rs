//! Users of a database and their permissions: create, upsert, read, replace, delete, list,
//! query. A permission is answered with a token that expires.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use perihelion_engine::{AccessFeed, AccessWrite, Refusal, charge};
use perihelion_model::json::{Object, Value};
use perihelion_wire::headers;
use perihelion_wire::path::Resource;
use perihelion_wire::status::{self, Status};

use super::pages::Page;
use super::{RegionService, databases, items, method_not_allowed, queries};
use crate::answer::Answer;
use crate::call::Call;

/// How long a token is valid, in seconds, unless the client says otherwise.
const TOKEN_SECONDS_DEFAULT: u64 = 60 * 60;
/// The shortest and the longest time that a client may ask for.
const TOKEN_SECONDS_MIN: u64 = 10;
const TOKEN_SECONDS_MAX: u64 = 24 * 60 * 60;

/// A feed of users or permissions, and the id of the entry that a request addresses (`None` for
/// the feed itself).
struct Addressed {
    feed: AccessFeed,
    /// The `_rid` of the feed's parent.
    parent_rid: String,
    /// The link of the feed's parent, by names.
    parent_link: String,
    id: Option<String>,
}

pub(super) async fn serve(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    let Addressed { feed, parent_rid, parent_link, id } = addressed(service, call)?;
    let token_seconds = token_seconds(call)?;
    let with_token = |body: Value| match &feed {
        AccessFeed::Users(_) => body,
        AccessFeed::Permissions { .. } => add_token(service, body, token_seconds),
    };
    let if_match = call.precondition().if_match;
    let answer = match (&call.method, id) {
        (&Method::GET, None) => {
            let entries = service.engine.access(&feed)?.into_iter();
            let entries = entries.map(|body| (text(&body, "_rid").and_then(creation_order), body)).collect();
            let mut page = Page::requested(call, entries, |rid| creation_order(rid).map(Some))?;
            page.bodies = std::mem::take(&mut page.bodies).into_iter().map(with_token).collect();
            let answer = Answer::feed(&parent_rid, feed_name(&feed), &page.bodies);
            page.add_continuation_to(answer).charged(charge::FEED)
        }
        (&Method::POST, None) if call.is_query() => {
            let bodies = service.engine.access(&feed)?.into_iter().map(with_token).collect();
            let rows = queries::run_over_metadata(service, call, bodies)?;
            Answer::feed(&parent_rid, feed_name(&feed), &rows).charged(charge::FEED)
        }
        (&Method::GET, Some(id)) => {
            let body = service
                .engine
                .access_entry(&feed, &id)?
                .map(with_token)
                .ok_or_else(Refusal::no_such_resource)?;
            body_answer(status::OK, &body, charge::METADATA_READ).with_content_location()
        }
        (&Method::POST, None) => {
            let is_upsert = call.flag(&headers::IS_UPSERT);
            let write = if is_upsert { AccessWrite::Upsert } else { AccessWrite::Create };
            let (body, is_new) = put(service, &feed, write, if_match, call.object()?).await?;
            let status = if is_new { status::CREATED } else { status::OK };
            body_answer(status, &with_token(body), charge::SCRIPT_WRITE)
        }
        (&Method::PUT, Some(id)) => {
            let write = AccessWrite::Replace(id);
            let (body, _) = put(service, &feed, write, if_match, call.object()?).await?;
            body_answer(status::OK, &with_token(body), charge::SCRIPT_WRITE).with_content_location()
        }
        (&Method::DELETE, Some(id)) => {
            let feed = feed.clone();
            service
                .change_catalog(move |engine| async move { engine.delete_access(feed, id, if_match).await })
                .await?;
            Answer::empty(status::NO_CONTENT).charged(charge::SCRIPT_WRITE)
        }
        _ => return Err(method_not_allowed(&call.method)),
    };
    Ok(answer
        .at(databases::account_position(service))
        .with_header(headers::ALT_CONTENT_PATH, parent_link)
        .with_header(headers::CONTENT_PATH, parent_rid))
}

/// Writes an entry. Returns its body, and whether it is new.
async fn put(
    service: &RegionService,
    feed: &AccessFeed,
    write: AccessWrite,
    if_match: Option<String>,
    body: Object,
) -> Result<(Value, bool), Refusal> {
    let feed = feed.clone();
    service
        .change_catalog(move |engine| async move { engine.put_access(feed, write, if_match, body).await })
        .await
}

/// The feed and the entry that a request addresses.
fn addressed(service: &RegionService, call: &Call) -> Result<Addressed, Refusal> {
    let (user, permission) = match &call.resource {
        Resource::User { user, .. } | Resource::Permissions { user, .. } => (Some(user), None),
        Resource::Permission { user, permission, .. } => (Some(user), Some(permission)),
        _ => (None, None),
    };
    let name = call.resource.database().ok_or_else(Refusal::no_such_resource)?;
    let catalog = service.engine.catalog();
    let database = catalog.database(name).ok_or_else(Refusal::no_such_resource)?;
    let is_rid = items::is_rid_path(service, call);
    let users = AccessFeed::Users(database.rid);
    let permissions =
        user.map(|user| service.engine.permissions_of(database.rid, user, is_rid)).transpose()?;
    let database_link = format!("dbs/{}", database.name);
    Ok(match (permissions, &call.resource) {
        (
            Some(AccessFeed::Permissions { user, name }),
            Resource::Permissions { .. } | Resource::Permission { .. },
        ) => {
            let parent_link = format!("{database_link}/users/{name}");
            let feed = AccessFeed::Permissions { user, name };
            let id = permission.map(|id| entry_id(service, &feed, id, is_rid)).transpose()?;
            Addressed { feed, parent_rid: user.to_text(), parent_link, id }
        }
        // The request addresses all users or one user. The id of that user is the name in the feed of
        // its permissions.
        (found, _) => {
            let id = found.and_then(|found| match found {
                AccessFeed::Permissions { name, .. } => Some(name),
                AccessFeed::Users(_) => None,
            });
            Addressed { feed: users, parent_rid: database.rid.to_text(), parent_link: database_link, id }
        }
    })
}

/// The id of an entry that is addressed by its id or its `_rid`.
fn entry_id(service: &RegionService, feed: &AccessFeed, id: &str, is_rid: bool) -> Result<String, Refusal> {
    if !is_rid {
        return Ok(id.to_owned());
    }
    service.engine.access_id(feed, id)?.ok_or_else(Refusal::no_such_resource)
}

/// How long the tokens of an answer are valid, in seconds.
fn token_seconds(call: &Call) -> Result<u64, Refusal> {
    let Some(text) = call.header(&headers::RESOURCE_TOKEN_EXPIRY_SECONDS) else {
        return Ok(TOKEN_SECONDS_DEFAULT);
    };
    let seconds =
        text.trim().parse().ok().filter(|seconds| (TOKEN_SECONDS_MIN..=TOKEN_SECONDS_MAX).contains(seconds));
    seconds.ok_or_else(|| {
        Refusal::gateway(
            status::BAD_REQUEST,
            format!("The value '{text}' of x-ms-documentdb-expiry-seconds is not between {TOKEN_SECONDS_MIN} and {TOKEN_SECONDS_MAX}."),
        )
    })
}

fn add_token(service: &RegionService, body: Value, seconds: u64) -> Value {
    let expires_at = service.engine.clock().seconds() + seconds;
    let token = text(&body, "_rid").and_then(|rid| service.account.authenticator.token(rid, expires_at));
    match (body, token) {
        (Value::Object(mut body), Some(token)) => {
            body.set("_token", token.into());
            Value::Object(body)
        }
        (body, _) => body,
    }
}

fn body_answer(status: Status, body: &Value, charge: f64) -> Answer {
    let etag = text(body, "_etag").unwrap_or_default().to_owned();
    Answer::json(status, body).charged(charge).with_etag(&etag)
}

/// How many bytes of a `_rid`, from the first one, identify the user. They sort in the order of creation.
const USER_BYTES: usize = 8;

/// The parts of a `_rid` that sort in the order of creation: the bytes that identify the user and, for
/// a permission, its counter, which is little-endian in the `_rid`.
fn creation_order(rid: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut user = STANDARD.decode(rid.replace('-', "/")).ok()?;
    let mut counter = user.split_off(user.len().min(USER_BYTES));
    counter.reverse();
    Some((user, counter))
}

fn feed_name(feed: &AccessFeed) -> &'static str {
    match feed {
        AccessFeed::Users(_) => "Users",
        AccessFeed::Permissions { .. } => "Permissions",
    }
}

fn text<'a>(body: &'a Value, name: &str) -> Option<&'a str> {
    body.get(name).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use perihelion_model::resource_id::{DatabaseRid, UserRid};

    use super::creation_order;

    /// Story of a bug: the permission number 256 came before number 1.
    #[test]
    fn permissions_sort_in_the_order_of_their_creation() {
        let user = |number: u32| UserRid { database: DatabaseRid(7), number };
        let permissions = |number: u32| [1, 2, 255, 256, 257, 65_536].map(|n| user(number).permission(n));
        let rids: Vec<String> = [permissions(1), permissions(256)].concat();
        let order: Vec<_> = rids.iter().map(|rid| creation_order(rid).unwrap()).collect();
        assert!(order.is_sorted(), "{order:?}");
        let users = [1, 255, 256, 65_536].map(|number| creation_order(&user(number).to_text()).unwrap());
        assert!(users.is_sorted(), "{users:?}");
    }
}
