//! Settings: the layers of options combined, with a value for every field.

use std::sync::Arc;
use std::time::Duration;

use super::{CustomHeaders, Hedging, OperationOptions, Overrides, Priority, ReadConsistency, check};
use crate::error::Error;
use crate::region::Region;

/// A value for every option.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) timeout: Duration,
    pub(crate) attempt_timeout: Duration,
    pub(crate) excluded_regions: Vec<Region>,
    pub(crate) hedging: Hedging,
    pub(crate) hedged_writes: bool,
    pub(crate) read_consistency: ReadConsistency,
    pub(crate) session_token: Option<Arc<str>>,
    pub(crate) failovers_max: u32,
    /// `None`: the limit depends on the account, see
    /// [`OperationOptions::session_retries_max`].
    pub(crate) session_retries_max: Option<u32>,
    pub(crate) throttle_retries_max: u32,
    pub(crate) throttle_wait_max: Duration,
    pub(crate) content_on_write: bool,
    pub(crate) priority: Option<Priority>,
    pub(crate) throughput_bucket: Option<u8>,
    pub(crate) dedicated_gateway_staleness_max: Option<Duration>,
    pub(crate) dedicated_gateway_bypass: bool,
    pub(crate) headers: CustomHeaders,
}

/// The classes of operations. Each class has defaults of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationClass {
    /// Operations on documents.
    Document,
    /// Distributed transactions.
    Transaction,
    /// Reads of the account, of databases, containers, ranges and throughput.
    MetadataRead,
    /// Creates, replaces and deletes of databases, containers and throughput.
    MetadataWrite,
}

/// Defaults that differ between the classes of operations.
struct Defaults {
    timeout: Duration,
    attempt_timeout: Duration,
    throttle_retries_max: u32,
    throttle_wait_max: Duration,
}

/// Defaults for documents. A request has 6 s, as in Microsoft's driver. That driver
/// has no timeout for the whole operation. Here the timeout is 65 s, enough for four
/// attempts of 6 s, 5 s of waiting for a moving write region and 30 s for conflicting
/// writes. The waits for throttled requests may take 18 times the longest single wait of 15 s,
/// which is 270 s. An operation that is to succeed after minutes of throttling needs a longer
/// timeout.
const DATA_DEFAULTS: Defaults = Defaults {
    timeout: Duration::from_secs(65),
    attempt_timeout: Duration::from_secs(6),
    throttle_retries_max: 18,
    throttle_wait_max: Duration::from_secs(270),
};

/// Defaults for distributed transactions. A coordinator works on many partitions, and retries by
/// itself before it gives up, so a request has more time than a request for a single document.
/// The timeout of the whole operation is long enough for three requests: when answers are lost,
/// the transaction can be sent again twice.
const TRANSACTION_DEFAULTS: Defaults = Defaults { attempt_timeout: Duration::from_secs(20), ..DATA_DEFAULTS };

/// Defaults for writes of metadata. The service may take most of a minute to create a
/// container, so a request has 65 s. The whole operation has time for two requests
/// and for throttling.
const METADATA_WRITE_DEFAULTS: Defaults = Defaults {
    timeout: Duration::from_secs(160),
    attempt_timeout: Duration::from_secs(65),
    throttle_retries_max: 9,
    throttle_wait_max: Duration::from_secs(30),
};

/// Defaults for reads of metadata. A request has 6 s, because such a read is as short as a read
/// of a document. Operations on documents wait for these reads, and a region that hangs must not
/// take all the time of the operation.
const METADATA_READ_DEFAULTS: Defaults =
    Defaults { attempt_timeout: DATA_DEFAULTS.attempt_timeout, ..METADATA_WRITE_DEFAULTS };

/// Retries after a region was unavailable; the same number as in Microsoft's driver.
const FAILOVERS_MAX: u32 = 3;

/// The layers of options that all operations of a driver share, and the settings of
/// operations without options of their own.
#[derive(Debug)]
pub(crate) struct OptionLayers {
    driver: OperationOptions,
    overrides: Overrides,
    documents: Arc<Settings>,
    transactions: Arc<Settings>,
    metadata_reads: Arc<Settings>,
    metadata_writes: Arc<Settings>,
}

impl OptionLayers {
    /// Checks the options of one driver, and combines them with the defaults of each class of
    /// operations. `driver` includes the options of the driver's runtime and of the environment.
    pub(crate) fn new(driver: &OperationOptions, overrides: Overrides) -> Result<Self, Error> {
        check::operation_options(driver)?;
        let nothing = OperationOptions::default();
        let settings = |class| Arc::new(resolve(driver, &nothing, class).overridden(overrides));
        Ok(OptionLayers {
            documents: settings(OperationClass::Document),
            transactions: settings(OperationClass::Transaction),
            metadata_reads: settings(OperationClass::MetadataRead),
            metadata_writes: settings(OperationClass::MetadataWrite),
            driver: driver.clone(),
            overrides,
        })
    }

    /// The settings of the metadata requests that the driver makes for itself. All of them
    /// are reads.
    pub(crate) fn metadata_settings(&self) -> &Settings {
        &self.metadata_reads
    }

    /// The settings of one operation. Allocates only if the operation has options of its
    /// own.
    pub(crate) fn settings_for(
        &self,
        operation: &OperationOptions,
        class: OperationClass,
    ) -> Result<Arc<Settings>, Error> {
        if operation.is_default() {
            return Ok(Arc::clone(match class {
                OperationClass::Document => &self.documents,
                OperationClass::Transaction => &self.transactions,
                OperationClass::MetadataRead => &self.metadata_reads,
                OperationClass::MetadataWrite => &self.metadata_writes,
            }));
        }
        check::operation_options(operation)?;
        Ok(Arc::new(resolve(&self.driver, operation, class).overridden(self.overrides)))
    }
}

impl Settings {
    /// The settings, with the overrides of the environment applied.
    fn overridden(mut self, overrides: Overrides) -> Self {
        self.hedging = match (overrides.hedging, self.hedging) {
            (Some(false), _) => Hedging::Off,
            (Some(true), Hedging::Off) => Hedging::dynamic(),
            (Some(true) | None, hedging) => hedging,
        };
        self
    }
}

/// Combines the layers: a field has the value of the operation, else of the driver, else
/// the default.
pub(crate) fn resolve(
    driver: &OperationOptions,
    operation: &OperationOptions,
    class: OperationClass,
) -> Settings {
    macro_rules! nearest {
        ($field:ident) => {
            operation.$field.as_ref().or(driver.$field.as_ref()).cloned()
        };
    }
    let default = match class {
        OperationClass::Document => DATA_DEFAULTS,
        OperationClass::Transaction => TRANSACTION_DEFAULTS,
        OperationClass::MetadataRead => METADATA_READ_DEFAULTS,
        OperationClass::MetadataWrite => METADATA_WRITE_DEFAULTS,
    };
    Settings {
        timeout: nearest!(timeout).unwrap_or(default.timeout).min(check::TIME_MAX),
        attempt_timeout: nearest!(attempt_timeout).unwrap_or(default.attempt_timeout).min(check::TIME_MAX),
        excluded_regions: nearest!(excluded_regions).unwrap_or_default(),
        hedging: within_bounds(nearest!(hedging).unwrap_or(Hedging::dynamic())),
        hedged_writes: nearest!(hedged_writes).unwrap_or(false),
        read_consistency: nearest!(read_consistency).unwrap_or(ReadConsistency::Account),
        session_token: nearest!(session_token),
        failovers_max: nearest!(failovers_max).unwrap_or(FAILOVERS_MAX),
        session_retries_max: nearest!(session_retries_max),
        throttle_retries_max: nearest!(throttle_retries_max).unwrap_or(default.throttle_retries_max),
        throttle_wait_max: nearest!(throttle_wait_max)
            .unwrap_or(default.throttle_wait_max)
            .min(check::TIME_MAX),
        content_on_write: nearest!(content_on_write).unwrap_or(true),
        priority: nearest!(priority),
        throughput_bucket: nearest!(throughput_bucket),
        dedicated_gateway_staleness_max: nearest!(dedicated_gateway_staleness_max)
            .map(|time| time.min(check::TIME_MAX)),
        dedicated_gateway_bypass: nearest!(dedicated_gateway_bypass).unwrap_or(false),
        headers: operation.headers.clone().or(&driver.headers),
    }
}

/// Limits a dynamic threshold to the widest bounds that are allowed, and a fixed
/// threshold to the longest time.
fn within_bounds(hedging: Hedging) -> Hedging {
    let clamp = |time: Duration| time.clamp(Hedging::DYNAMIC_MIN, Hedging::DYNAMIC_MAX);
    match hedging {
        Hedging::Dynamic { min, max } => Hedging::Dynamic { min: clamp(min), max: clamp(max) },
        Hedging::Fixed(time) => Hedging::Fixed(time.min(check::TIME_MAX)),
        Hedging::Off => Hedging::Off,
    }
}
