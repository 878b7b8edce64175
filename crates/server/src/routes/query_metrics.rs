//! Query metrics (`x-ms-documentdb-query-metrics`), for clients that send
//! `populatequerymetrics`.

use std::time::{Duration, Instant};

use perihelion_engine::{Container, QueryPage, Refusal};

use super::RegionService;

/// When a query began and when it was compiled.
pub(super) struct Times {
    began_at: Instant,
    compiled_at: Instant,
}

impl Times {
    pub(super) fn start() -> Self {
        let now = Instant::now();
        Times { began_at: now, compiled_at: now }
    }

    /// Notes that the query is compiled now.
    pub(super) fn note_compiled(&mut self) {
        self.compiled_at = Instant::now();
    }
}

/// The documents that a page loaded, as the service counts them.
pub(super) struct RetrievedWork {
    documents: u64,
    bytes: u64,
}

impl RetrievedWork {
    /// The work of a page. Each loaded document counts with the average size of the container's
    /// documents.
    pub(super) fn of(
        service: &RegionService,
        container: &Container,
        page: &QueryPage,
    ) -> Result<Self, Refusal> {
        let state = service.engine.state(container)?;
        let average = state.bytes().checked_div(state.documents()).unwrap_or(0);
        Ok(RetrievedWork { documents: page.work.documents, bytes: page.work.documents * average })
    }
}

/// The metrics of a page. The run is not measured in parts: its whole time counts as time of
/// the query engine.
pub(super) fn print(page: &QueryPage, work: RetrievedWork, times: &Times) -> String {
    let (compile, total) = (times.compiled_at - times.began_at, times.began_at.elapsed());
    let run = total.saturating_sub(compile);
    let ratio = if work.documents == 0 { 1.0 } else { page.rows as f64 / work.documents as f64 };
    let (compile, total, run) = (milliseconds(compile), milliseconds(total), milliseconds(run));
    let RetrievedWork { documents, bytes } = work;
    let (rows, output) = (page.rows, page.rows_text.len());
    format!(
        "totalExecutionTimeInMs={total:.2};queryCompileTimeInMs={compile:.2};queryLogicalPlanBuildTimeInMs=0.00;queryPhysicalPlanBuildTimeInMs=0.00;queryOptimizationTimeInMs=0.00;VMExecutionTimeInMs={run:.2};indexLookupTimeInMs=0.00;instructionCount=0;documentLoadTimeInMs=0.00;systemFunctionExecuteTimeInMs=0.00;userFunctionExecuteTimeInMs=0.00;retrievedDocumentCount={documents};retrievedDocumentSize={bytes};outputDocumentCount={rows};outputDocumentSize={output};writeOutputTimeInMs=0.00;indexUtilizationRatio={:.2}",
        ratio.min(1.0),
    )
}

/// A measured time in milliseconds. It is at least 0.01, the smallest time that the metrics can show.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).max(0.01)
}
