//! Who the driver is to the service.
