//! What hooks are asked and what they answer: JSON, the same for modules and webhooks.

pub mod customize;
pub mod deletion;
pub mod read;
pub mod request;
pub mod response;
pub mod response_error;
