use super::*;

#[test]
fn every_metric_is_described() {
    let metrics = Metrics::new();
    let registry = format!("{:?}", metrics.catalog.registry);
    let registered = registry.matches("Descriptor {").count();
    assert_eq!(metrics.descriptions().len(), registered, "{registry}");
}

#[test]
fn a_description_has_the_name_that_is_scraped() {
    let metrics = Metrics::new();
    metrics.refused("loop");
    let text = metrics.scrape(&Snapshot {
        streams: 0,
        servers: Vec::new(),
        store: None,
    });
    assert!(
        text.contains("bowline_refusals_total{reason=\"loop\"} 1"),
        "{text}"
    );
    let mut names = metrics.descriptions().iter().map(Description::scraped_name);
    assert!(names.any(|name| name == "bowline_refusals_total"));
}
