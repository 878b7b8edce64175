//! A typed, thin client over the driver.
