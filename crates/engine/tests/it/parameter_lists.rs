//! Queries with lists of parameters: `IN (@one, @two)` and `ARRAY_CONTAINS(@list, ...)`. They use an
//! index as an equality does, and so they read and charge only for documents that match.

use std::sync::Arc;

use perihelion_engine::{
    Container, Engine, EngineOptions, ItemOperation, NewBody, Precondition, QueryPage, QueryRequest,
};
use perihelion_model::json::parse_str;
use perihelion_model::partition_key::PartitionKey;
use perihelion_query::{Now, Parameters};

use crate::support;

/// The documents of the container. Each parent has four of them.
const DOCUMENTS: usize = 1000;
const PARENTS: usize = DOCUMENTS / 4;

async fn fill(engine: &Engine, container: &Arc<Container>) {
    for n in 0..DOCUMENTS {
        let (pk, parent) = (n % 7, n % PARENTS);
        let body = format!(r#"{{"id":"{n}","pk":"k{pk}","type":"history","parent":"p{parent}"}}"#);
        let operation =
            ItemOperation::Create { body: NewBody::new(support::object(&body), container).unwrap() };
        let key = PartitionKey::from_header(&format!(r#"["k{pk}"]"#)).unwrap();
        engine.write_item(container, key, operation, Precondition::default()).await.unwrap();
    }
}

/// The first page of a query with these parameters.
fn page(engine: &Engine, text: &str, parameters: &str) -> QueryPage {
    let container = engine.catalog().container("d", "c").unwrap().clone();
    let now = Now::from_unix_milliseconds(1_700_000_000_000);
    let parameters = Parameters::from_json(parse_str(parameters).unwrap()).unwrap();
    let statement = perihelion_query::parse(text).unwrap();
    let request = QueryRequest {
        program: perihelion_query::compile(&statement, &parameters, now).unwrap(),
        ..support::query_request("SELECT 1", now, 1000)
    };
    engine.query(&container, &request, &[]).unwrap()
}

/// The names of this many parents that exist, and of as many that do not exist.
fn names(count: usize) -> Vec<String> {
    (0..count).flat_map(|n| [format!("p{n}"), format!("nobody{n}")]).collect()
}

#[tokio::test]
async fn lists_of_parameters_read_only_the_documents_that_match() {
    for count in [1, 32, 128] {
        let names = names(count);
        let list: Vec<String> = (0..names.len()).map(|n| format!("@name{n}")).collect();
        let values: Vec<String> = names
            .iter()
            .zip(&list)
            .map(|(name, parameter)| format!(r#"{{"name":"{parameter}","value":"{name}"}}"#))
            .collect();
        let in_list = (format!("c.parent IN ({})", list.join(", ")), format!("[{}]", values.join(",")));
        let array = format!(r#"[{{"name":"@names","value":["{}"]}}]"#, names.join(r#"",""#));
        let array_contains = ("ARRAY_CONTAINS(@names, c.parent)".to_owned(), array);
        for (condition, parameters) in [in_list, array_contains] {
            let engine = support::engine(EngineOptions::default()).await;
            let container = support::container(&engine, "c").await;
            fill(&engine, &container).await;
            let text = format!("SELECT VALUE c.id FROM c WHERE c.type = 'history' AND {condition}");
            let scanned = page(&engine, &text, &parameters);
            assert_eq!((scanned.rows, scanned.work.documents), (4 * count, DOCUMENTS as u64), "{text}");
            // The first query asked for the index.
            engine.maintain().await.unwrap();
            let found = page(&engine, &text, &parameters);
            assert_eq!((found.rows, found.work.documents), (4 * count, 4 * count as u64), "{text}");
            assert!(found.used_index && found.charge < scanned.charge, "{text}");
        }
    }
}
