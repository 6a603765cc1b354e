//! Paths of a server's inspection address, for the server and for the commands that ask it.

/// The latest reconciles of an object.
pub const RECONCILES: &str = "/v1/reconciles";

/// How a controller stands.
pub const CONTROLLER: &str = "/v1/controller";

/// What the controllers of a kind count.
pub const CONTROLLERS: &str = "/v1/controllers";

/// A page of the list of a controller's parents.
pub const PARENTS: &str = "/v1/parents";

/// The reconciles of a controller that come.
pub const RECORDING: &str = "/v1/recording";

pub const ALL: [&str; 5] = [RECONCILES, CONTROLLER, CONTROLLERS, PARENTS, RECORDING];
