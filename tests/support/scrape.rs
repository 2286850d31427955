//! The program's metrics, read as Prometheus reads them.

use super::Client;

/// One reply of `/metrics`.
#[derive(Clone, Debug)]
pub struct Scrape {
    samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Scrape {
    pub async fn of(client: &Client) -> Self {
        let reply = client.get("/metrics").await.expect("a reply");
        assert_eq!(reply.status, 200, "no metrics: {reply:?}");
        Self::parse(&reply.body)
    }

    pub fn parse(text: &str) -> Self {
        let samples = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| Sample::parse(line).unwrap_or_else(|| panic!("not a sample: {line}")))
            .collect();
        Self { samples }
    }

    /// Returns the sum of the samples of `name` that carry `labels`; 0 if there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.samples
            .iter()
            .filter(|sample| sample.name == name && sample.carries(labels))
            .map(|sample| sample.value)
            .sum()
    }

    pub fn has(&self, name: &str) -> bool {
        self.samples.iter().any(|sample| sample.name == name)
    }

    /// Returns how many reservations ended with `outcome`.
    pub fn n_reservations(&self, outcome: &str) -> f64 {
        self.sum("odometer_reservations_total", &[("outcome", outcome)])
    }

    pub fn n_abandoned(&self) -> f64 {
        self.sum("odometer_abandoned_numbers_total", &[])
    }
}

impl Sample {
    fn parse(line: &str) -> Option<Self> {
        let (series, value) = line.rsplit_once(' ')?;
        let value = value.parse().ok()?;
        let Some((name, labels)) = series.split_once('{') else {
            return Some(Self {
                name: series.to_owned(),
                labels: Vec::new(),
                value,
            });
        };
        let labels = labels.strip_suffix('}')?;
        let labels = labels
            .split("\",")
            .filter(|label| !label.is_empty())
            .map(|label| {
                let (key, value) = label.split_once("=\"")?;
                Some((key.to_owned(), value.trim_end_matches('"').to_owned()))
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self {
            name: name.to_owned(),
            labels,
            value,
        })
    }

    fn carries(&self, wanted: &[(&str, &str)]) -> bool {
        wanted.iter().all(|(key, value)| {
            self.labels
                .iter()
                .any(|(k, v)| k.as_str() == *key && v.as_str() == *value)
        })
    }
}

#[test]
fn a_scrape_is_read_with_and_without_labels() {
    let scrape = Scrape::parse(
        "# TYPE a counter\na 3\nb{x=\"1\",y=\"two\"} 2\nb{x=\"2\",y=\"two\"} 5\n\nc{z=\"\"} 1e3\n",
    );
    assert_eq!(scrape.sum("a", &[]), 3.0);
    assert_eq!(scrape.sum("b", &[("y", "two")]), 7.0);
    assert_eq!(scrape.sum("b", &[("y", "two"), ("x", "2")]), 5.0);
    assert_eq!(scrape.sum("c", &[("z", "")]), 1000.0);
    assert!(!scrape.has("d"));
}
