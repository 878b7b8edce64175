//! The peers: a trivial provider in memory, which is the runtime's ceiling,
//! duroxide's SQLite provider on a file, and duroxide-pg.

mod memory;

use std::process::ExitCode;
use std::sync::Arc;

use duroxide::providers::Provider;
use duroxide::providers::sqlite::SqliteProvider;
use duroxide_pg::PostgresProvider;
use perihelion_bench_provider::{Place, Problem};

fn main() -> ExitCode {
    perihelion_bench_provider::main(open)
}

async fn open(place: Place) -> Result<Arc<dyn Provider>, Problem> {
    Ok(match place.name.as_str() {
        "memory" => Arc::new(memory::Memory::default()),
        "sqlite" => {
            let file = place.directory.join("duroxide.db");
            Arc::new(SqliteProvider::new(&format!("sqlite:{}?mode=rwc", file.display()), None).await?)
        }
        "postgres" => {
            Arc::new(PostgresProvider::new(&place.endpoint).await.map_err(|error| format!("{error:#}"))?)
        }
        other => return Err(format!("there is no peer `{other}`").into()),
    })
}
