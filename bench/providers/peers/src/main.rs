//! The provider program of three peers: a trivial provider in memory (the upper bound for any
//! provider), duroxide's SQLite provider on a file, and duroxide-pg.

mod memory;

use std::process::ExitCode;
use std::sync::Arc;

use duroxide::providers::Provider;
use duroxide::providers::sqlite::SqliteProvider;
use duroxide_pg::PostgresProvider;
use perihelion_bench_provider::{Location, Problem};

fn main() -> ExitCode {
    perihelion_bench_provider::main(open)
}

async fn open(location: Location) -> Result<Arc<dyn Provider>, Problem> {
    Ok(match location.name.as_str() {
        "memory" => Arc::new(memory::Memory::default()),
        "sqlite" => {
            let file = location.directory.join("duroxide.db");
            Arc::new(SqliteProvider::new(&format!("sqlite:{}?mode=rwc", file.display()), None).await?)
        }
        "postgres" => {
            Arc::new(PostgresProvider::new(&location.endpoint).await.map_err(|error| format!("{error:#}"))?)
        }
        other => return Err(format!("there is no peer `{other}`").into()),
    })
}
