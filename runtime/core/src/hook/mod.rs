//! Protocol of hooks: requests and answers in JSON, the same for modules and webhooks.

pub mod customize;
pub mod deletion;
pub mod read;
pub mod request;
pub mod response;
pub mod response_error;
