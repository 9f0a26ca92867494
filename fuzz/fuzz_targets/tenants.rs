//! Any text as the path of a control group and as a file of names: what is kept of it is bounded, and the same each time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ncpu_machine::tenant::{By, Known, Place, Rules, Tenant};

fuzz_target!(|text: &str| {
    let place = Place::parse(text);
    assert_eq!(place, Place::parse(text));
    let bounded = |name: &Option<String>| name.as_ref().is_none_or(|name| name.chars().count() <= 255);
    assert!(bounded(&place.unit) && bounded(&place.slice) && bounded(&place.session) && bounded(&place.pod));
    let mut known = Known::below("/nonexistent".as_ref());
    let tenant = Tenant::find(text, "sh", 7, &mut known);
    for by in [By::Tenant, By::Unit, By::Pod, By::Container, By::Job, By::User, By::Cgroup(2)] {
        assert!(!tenant.name(by).is_empty());
    }
    if let Ok(rules) = Rules::parse(text) {
        let _ = rules.name_of(&tenant);
    }
});
