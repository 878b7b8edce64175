//! How documents are divided into layers without repeated ids and into pieces of bounded length,
//! and the query for such a piece.

use perihelion_model::partition_key::{HashVersion, KeyKind, KeyPath, PartitionKeyDefinition};
use serde_json::{Value, json};

use super::plan::{CHUNK_DOCUMENTS_MAX, WantedDocument, layers, pieces};
use super::statement;

fn wanted(index: usize, key: &str, id: &str) -> WantedDocument {
    WantedDocument { index, key: key.into(), id: id.to_owned() }
}

#[test]
fn an_id_is_unique_within_a_layer() {
    let list = vec![wanted(0, "a", "1"), wanted(1, "b", "1"), wanted(2, "a", "2"), wanted(3, "a", "1")];
    let indexes: Vec<Vec<usize>> =
        layers(list).iter().map(|layer| layer.iter().map(|document| document.index).collect()).collect();
    assert_eq!(indexes, [vec![0, 2], vec![1], vec![3]]);
}

#[test]
fn a_layer_is_divided_into_bounded_pieces() {
    let list = (0..2 * CHUNK_DOCUMENTS_MAX + 1).map(|index| wanted(index, "a", &index.to_string())).collect();
    let lengths: Vec<usize> = pieces(list).map(|piece| piece.len()).collect();
    assert_eq!(lengths, [CHUNK_DOCUMENTS_MAX, CHUNK_DOCUMENTS_MAX, 1]);
}

#[test]
fn the_statement_names_pairs_of_id_and_key() {
    let definition = PartitionKeyDefinition {
        paths: vec![KeyPath::parse("/tenant").unwrap(), KeyPath::parse("/a/\"odd name\"").unwrap()],
        kind: KeyKind::MultiHash,
        version: HashVersion::V2,
    };
    let list = [
        WantedDocument { index: 0, key: ("eu", 7).into(), id: "1".to_owned() },
        WantedDocument { index: 1, key: ("eu", ()).into(), id: "it's".to_owned() },
    ];
    let body: Value = serde_json::from_slice(&statement::body(&list, &definition).unwrap()).unwrap();
    assert_eq!(
        body["query"],
        "SELECT * FROM c WHERE c.id IN (@i0, @i1) AND ((c.id = @i0 AND c[\"tenant\"] = @k0_0 AND \
         c[\"a\"][\"odd name\"] = @k0_1) OR (c.id = @i1 AND c[\"tenant\"] = @k1_0 AND c[\"a\"][\"odd name\"] = @k1_1))"
    );
    assert_eq!(body["parameters"][1], json!({"name": "@k0_1", "value": 7.0}));
    assert_eq!(body["parameters"][5], json!({"name": "@i1", "value": "it's"}));
}
