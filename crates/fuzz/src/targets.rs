//! The targets: each has examples, a dictionary, and a function that runs one input.

mod files;
mod merge;
mod requests;
mod tokens;
mod values;

use perihelion_model::json::{self, Value};
use perihelion_query::{Now, Parameters, compile, parse, plan};

/// A part of the program that is fuzzed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Statements: parsed, printed, planned, compiled and run on documents.
    Sql,
    /// JSON text.
    Json,
    /// Binary JSON.
    BinaryJson,
    /// Session tokens, partition keys, `_rid`s, paths, dates and credentials.
    Tokens,
    /// Patches: parsed and applied, with their conditions.
    Patch,
    /// Bodies of distributed transactions.
    Transaction,
    /// The client's merge of a query over several ranges: plans, continuation tokens and pages.
    Merge,
    /// Whole requests to an account in this process: batches, queries with continuation tokens,
    /// change feeds, headers.
    Requests,
    /// The files of a data directory.
    Files,
}

/// A function that runs one input. It panics if a property does not hold.
pub(crate) type Subject = Box<dyn FnMut(&[u8])>;

impl Target {
    /// All targets.
    pub const ALL: [Target; 9] = [
        Target::Sql,
        Target::Json,
        Target::BinaryJson,
        Target::Tokens,
        Target::Patch,
        Target::Transaction,
        Target::Merge,
        Target::Requests,
        Target::Files,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Target::Sql => "sql",
            Target::Json => "json",
            Target::BinaryJson => "binary-json",
            Target::Tokens => "tokens",
            Target::Patch => "patch",
            Target::Transaction => "transaction",
            Target::Merge => "merge",
            Target::Requests => "requests",
            Target::Files => "files",
        }
    }

    /// The target with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.name() == name)
    }

    pub(crate) fn examples(self) -> Vec<Vec<u8>> {
        match self {
            Target::Sql => statements(),
            Target::Json => values::json_examples(),
            Target::BinaryJson => values::binary_examples(),
            Target::Tokens => tokens::examples(),
            Target::Patch => values::patch_examples(),
            Target::Transaction => values::transaction_examples(),
            Target::Merge => merge::examples(),
            Target::Requests => requests::examples(),
            Target::Files => files::examples(),
        }
    }

    /// The dictionary.
    pub(crate) fn words(self) -> &'static [&'static str] {
        match self {
            Target::Sql => SQL_WORDS,
            Target::Json | Target::Patch | Target::Transaction => values::WORDS,
            Target::Merge => merge::WORDS,
            Target::Requests => requests::WORDS,
            Target::BinaryJson | Target::Tokens | Target::Files => &[],
        }
    }

    pub(crate) fn subject(self) -> Subject {
        match self {
            Target::Sql => Box::new(run_statement),
            Target::Json => Box::new(values::run_json),
            Target::BinaryJson => Box::new(values::run_binary),
            Target::Tokens => Box::new(tokens::run),
            Target::Patch => Box::new(values::run_patch),
            Target::Transaction => Box::new(values::run_transaction),
            Target::Merge => Box::new(merge::run),
            Target::Requests => requests::subject(),
            Target::Files => files::subject(),
        }
    }
}

/// Texts as examples.
pub(crate) fn bytes_of(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

const SQL_WORDS: &[&str] = &[
    "SELECT",
    "VALUE",
    "DISTINCT",
    "TOP 3",
    "FROM c",
    "JOIN x IN c.list",
    "WHERE",
    "GROUP BY c.n",
    "ORDER BY c.n DESC",
    "OFFSET 1 LIMIT 2",
    "AND",
    "OR",
    "NOT",
    "IN (1, 2)",
    "BETWEEN 1 AND 2",
    "LIKE '%a_'",
    "EXISTS(",
    "ARRAY(",
    "c.n",
    "c['s']",
    "c.list[0]",
    "@p",
    "null",
    "undefined",
    "true",
    "1",
    "-1.5e3",
    "'text'",
    "\"text\"",
    "??",
    "? 1 : 2",
    "||",
    "COUNT(1)",
    "SUM(c.n)",
    "AVG(c.n)",
    "MIN(c.s)",
    "MAX(c.s)",
    "(",
    ")",
    "[",
    "]",
    "{'a': 1}",
    "*",
    "AS x",
    ",",
    "SUBSTRING(c.s, 1, 2)",
    "REPLICATE('ab', 9999)",
    "RegexMatch(c.s, 'a*')",
    "ARRAY_CONTAINS(c.list, 1)",
    "DateTimeAdd('yyyy', 1, '2020-01-01T00:00:00Z')",
    "IIF(true, 1, 2)",
    "StringSplit(c.s, 'e')",
    "udf.f()",
    "--",
    "VectorDistance(c.list, [1, 2])",
    "FullTextContains(c.s, 'e')",
    "RANK",
    "RRF(",
    "ST_DISTANCE(c.o, c.o)",
];

/// The statements of the recorded behaviour of the service.
fn statements() -> Vec<Vec<u8>> {
    let mut texts = Vec::new();
    for file in ["parser.json", "query-plans.json"] {
        let value = json::parse_str(&perihelion_testkit::conformance::read(file)).expect("the file is JSON");
        collect_statements(&value, &mut texts);
    }
    assert!(texts.len() > 100, "the recorded statements are missing");
    texts
}

/// Longer texts would make every input slow and would not find more failures.
const STATEMENT_BYTES_MAX: usize = 500;

fn collect_statements(value: &Value, out: &mut Vec<Vec<u8>>) {
    match value {
        Value::String(text)
            if text.len() < STATEMENT_BYTES_MAX && text.to_ascii_uppercase().contains("SELECT") =>
        {
            out.push(text.clone().into_bytes());
        }
        Value::Array(items) => items.iter().for_each(|item| collect_statements(item, out)),
        Value::Object(object) => object.iter().for_each(|(_, member)| collect_statements(member, out)),
        _ => {}
    }
}

fn run_statement(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(query) = parse(text) else { return };
    let normal = query.normal_form();
    match parse(&normal) {
        Ok(again) => assert_eq!(again.normal_form(), normal, "the normal form is not its own normal form"),
        // The normal form has more parentheses, so a deep statement may be too deep in this form.
        Err(errors) => assert!(format!("{errors:?}").contains("too deeply"), "{normal}: {errors:?}"),
    }
    let parameters = json::parse_str(r#"[{"name":"@p","value":[1,"a"]}]"#).expect("a constant");
    let parameters = Parameters::from_json(parameters).expect("a constant");
    let _ = plan(&query, &parameters, None, &["/pk"]);
    let Ok(program) = compile(&query, &parameters, Now::from_unix_milliseconds(1_700_000_000_000)) else {
        return;
    };
    let _ = program.run(&documents());
}

/// Documents that the statements run on.
fn documents() -> Vec<Value> {
    [
        r#"{"id":"1","pk":"a","n":1,"s":"text","list":[1,2,3],"o":{"type":"Point","coordinates":[1,2]}}"#,
        r#"{"id":"2","pk":"b","n":-1.5,"s":"","list":[{"x":[]},null,"e"],"o":{"a":{"b":[[1]]}}}"#,
        r#"{"id":"3","pk":null,"n":null,"s":"é\u0000","list":{},"b":true}"#,
    ]
    .map(|text| json::parse_str(text).expect("a constant"))
    .into()
}
