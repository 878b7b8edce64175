//! `Case`: one case of `service-cases.json`. It is parsed strictly: an unknown
//! member is an error, so that no expectation is skipped by accident.

use perihelion_model::json::{Object, Value};

pub(super) struct Case {
    pub(super) id: String,
    pub(super) tags: Vec<String>,
    pub(super) setup: Vec<Step>,
    pub(super) request: RecordedRequest,
    /// How many times the request is sent. Several requests are sent at the same time, and
    /// one matching answer is enough.
    pub(super) repeat: usize,
    pub(super) expect: Expect,
}

/// One step of the set-up. `Seed` creates documents in several partitions.
pub(super) enum Step {
    CreateDatabase { throughput: i64 },
    CreateContainer { body: Value },
    CreateDocument { key: Value, body: Body, save: Saves },
    Batch { key: Value, is_atomic: bool, body: Value },
    Request { request: RecordedRequest, status: u16, save: Saves },
    Seed { partitions: i64, per_partition: i64 },
    Sleep { seconds: i64 },
}

/// A request of a case. Its texts may contain variables.
pub(super) struct RecordedRequest {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Body,
}

/// The body of a request. `Repeat` is the prefix, `count` times the filler, and the
/// suffix.
pub(super) enum Body {
    Empty,
    Json(Value),
    Raw(String),
    Repeat { prefix: String, filler: String, count: usize, suffix: String },
}

/// The variables that a step saves, and where their values come from.
pub(super) type Saves = Vec<(String, Source)>;

/// A header of the answer, or a member of its body.
pub(super) enum Source {
    Header(String),
    Member(String),
}

/// The expected answer.
pub(super) struct Expect {
    pub(super) status: u16,
    pub(super) substatus: Option<u16>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Object,
}

type Parsed<T> = Result<T, String>;

impl Case {
    pub(super) fn read(value: &Value) -> Parsed<Case> {
        let id = text(value, "id")?;
        Case::read_members(&id, value).map_err(|error| format!("{id}: {error}"))
    }

    fn read_members(id: &str, value: &Value) -> Parsed<Case> {
        refuse_unknown_members(
            value,
            &["id", "area", "basis", "note", "tags", "setup", "request", "expect", "ru_recorded"],
        )?;
        let request = member(value, "request")?;
        refuse_unknown_members(
            request,
            &["method", "path", "headers", "body", "body_raw", "body_repeat", "repeat", "parallel"],
        )?;
        let repeat = match request.get("repeat") {
            None => 1,
            Some(_) => integer(request, "repeat")? as usize,
        };
        Ok(Case {
            id: id.to_owned(),
            tags: match value.get("tags").and_then(Value::as_array) {
                Some(tags) => tags.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                None => Vec::new(),
            },
            setup: list(value, "setup")?.iter().map(Step::read).collect::<Parsed<_>>()?,
            request: RecordedRequest::read(request)?,
            repeat,
            expect: Expect::read(member(value, "expect")?)?,
        })
    }

    pub(super) fn has_tag(&self, tag: &str) -> bool {
        self.tags.iter().any(|own| own == tag)
    }
}

impl Step {
    fn read(value: &Value) -> Parsed<Step> {
        let op = text(value, "op")?;
        let known: &[&str] = match op.as_str() {
            "create_db" => &["op", "throughput"],
            "create_coll" => &["op", "body"],
            "create_doc" => &["op", "pk", "body", "body_raw", "save"],
            "batch" => &["op", "pk", "atomic", "body"],
            "request" => &["op", "method", "path", "headers", "body", "body_raw", "expect_status", "save"],
            "seed" => &["op", "comment", "partitions", "per_partition"],
            "sleep" => &["op", "seconds"],
            _ => return Err(format!("unknown setup operation {op}")),
        };
        refuse_unknown_members(value, known)?;
        Ok(match op.as_str() {
            "create_db" => Step::CreateDatabase { throughput: integer(value, "throughput")? },
            "create_coll" => Step::CreateContainer { body: member(value, "body")?.clone() },
            "create_doc" => Step::CreateDocument {
                key: member(value, "pk")?.clone(),
                body: Body::read(value)?,
                save: read_saves(value)?,
            },
            "batch" => Step::Batch {
                key: member(value, "pk")?.clone(),
                is_atomic: member(value, "atomic")?.as_bool().ok_or("atomic is not a flag")?,
                body: member(value, "body")?.clone(),
            },
            "request" => Step::Request {
                request: RecordedRequest::read(value)?,
                status: integer(value, "expect_status")? as u16,
                save: read_saves(value)?,
            },
            "seed" => Step::Seed {
                partitions: integer(value, "partitions")?,
                per_partition: integer(value, "per_partition")?,
            },
            _ => Step::Sleep { seconds: integer(value, "seconds")? },
        })
    }
}

impl RecordedRequest {
    fn read(value: &Value) -> Parsed<RecordedRequest> {
        Ok(RecordedRequest {
            method: text(value, "method")?,
            path: text(value, "path")?,
            headers: pairs(member(value, "headers")?)?,
            body: Body::read(value)?,
        })
    }
}

impl Body {
    fn read(value: &Value) -> Parsed<Body> {
        if let Some(body) = value.get("body") {
            return Ok(Body::Json(body.clone()));
        }
        if value.get("body_raw").is_some() {
            return text(value, "body_raw").map(Body::Raw);
        }
        let Some(repeat) = value.get("body_repeat") else { return Ok(Body::Empty) };
        refuse_unknown_members(repeat, &["prefix", "char", "count", "suffix"])?;
        Ok(Body::Repeat {
            prefix: text(repeat, "prefix")?,
            filler: text(repeat, "char")?,
            count: integer(repeat, "count")? as usize,
            suffix: text(repeat, "suffix")?,
        })
    }
}

impl Expect {
    fn read(value: &Value) -> Parsed<Expect> {
        refuse_unknown_members(value, &["status", "substatus", "headers", "body"])?;
        Ok(Expect {
            status: integer(value, "status")? as u16,
            substatus: match value.get("substatus") {
                None => None,
                Some(_) => Some(integer(value, "substatus")? as u16),
            },
            headers: pairs(member(value, "headers")?)?,
            body: member(value, "body")?.as_object().ok_or("body is not an object")?.clone(),
        })
    }
}

fn read_saves(value: &Value) -> Parsed<Saves> {
    let Some(saves) = value.get("save") else { return Ok(Vec::new()) };
    let source = |(name, from): (String, String)| match from.split_once(':') {
        Some(("header", header)) => Ok((name, Source::Header(header.to_owned()))),
        Some(("body", member)) => Ok((name, Source::Member(member.to_owned()))),
        _ => Err(format!("unknown source {from}")),
    };
    pairs(saves)?.into_iter().map(source).collect()
}

fn pairs(value: &Value) -> Parsed<Vec<(String, String)>> {
    let object = value.as_object().ok_or("not an object of strings")?;
    let pair = |(name, value): (&str, &Value)| {
        Ok((name.to_owned(), value.as_str().ok_or(format!("{name} is not a string"))?.to_owned()))
    };
    object.iter().map(pair).collect()
}

/// Refuses an object with a member that is not in `known`.
pub(super) fn refuse_unknown_members(value: &Value, known: &[&str]) -> Parsed<()> {
    let object = value.as_object().ok_or("not an object")?;
    match object.iter().find(|(name, _)| !known.contains(name)) {
        Some((name, _)) => Err(format!("the runner does not know the member {name}")),
        None => Ok(()),
    }
}

fn member<'a>(value: &'a Value, name: &str) -> Parsed<&'a Value> {
    value.get(name).ok_or(format!("no member {name}"))
}

fn text(value: &Value, name: &str) -> Parsed<String> {
    Ok(member(value, name)?.as_str().ok_or(format!("{name} is not a string"))?.to_owned())
}

fn integer(value: &Value, name: &str) -> Parsed<i64> {
    member(value, name)?.as_i64().ok_or(format!("{name} is not an integer"))
}

fn list<'a>(value: &'a Value, name: &str) -> Parsed<&'a [Value]> {
    member(value, name)?.as_array().ok_or(format!("{name} is not an array"))
}
