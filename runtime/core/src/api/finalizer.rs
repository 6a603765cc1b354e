//! Finalizers of controllers: their names are Metacontroller's.

use crate::api::ControllerKind;
use crate::api::SpecError;

/// Checks that a controller's name fits into a finalizer: the API server takes 63 characters behind the slash. The
/// prefixes of both kinds are equally long.
pub fn check_name(controller: &str) -> Result<(), SpecError> {
    const MAX_NAME: usize = 63 - "compositecontroller-".len();
    if controller.len() <= MAX_NAME {
        return Ok(());
    }
    let problem = format!(
        "{} characters are too many for a controller with a finalize hook, whose name becomes part of a finalizer: at most {MAX_NAME}",
        controller.len()
    );
    Err(SpecError::new("metadata.name", problem))
}

/// The finalizer of a controller.
pub fn name(kind: ControllerKind, controller: &str) -> String {
    format!("{}{controller}", prefix(kind))
}

/// The kind and the name of the controller that a finalizer belongs to; `None` for other finalizers.
pub fn controller(finalizer: &str) -> Option<(ControllerKind, &str)> {
    let of = |kind| Some((kind, finalizer.strip_prefix(prefix(kind))?));
    of(ControllerKind::Composite).or_else(|| of(ControllerKind::Decorator))
}

fn prefix(kind: ControllerKind) -> &'static str {
    match kind {
        ControllerKind::Composite => "metacontroller.io/compositecontroller-",
        ControllerKind::Decorator => "metacontroller.io/decoratorcontroller-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finalizer_names_its_controller() {
        for kind in [ControllerKind::Composite, ControllerKind::Decorator] {
            assert_eq!(controller(&name(kind, "a-b")), Some((kind, "a-b")));
        }
        assert_eq!(name(ControllerKind::Decorator, "c"), "metacontroller.io/decoratorcontroller-c");
        assert_eq!(controller("foregroundDeletion"), None);
    }
}
