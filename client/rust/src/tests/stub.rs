//! A stub of the service, which answers as a test says.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::{Value, json};

/// What a test says to a call.
pub(super) enum Said {
    /// The stub answers as usual.
    GoOn,
    /// A status and a body.
    Reply(u16, Value),
    /// The connection ends without a reply.
    Cut,
}

type Answerer = Box<dyn FnMut(&StubState, &str) -> Said + Send>;

/// Gives the numbers 1, 2, 3 …, and leases of worker ids, unless `answer` says something else.
#[derive(Clone)]
pub(super) struct Stub {
    pub(super) state: Arc<StubState>,
    pub(super) url: String,
}

pub(super) struct StubState {
    numbers: Mutex<(i64, i64)>,
    pub(super) definition: Mutex<Value>,
    /// The calls, such as `POST next?count=100`.
    pub(super) calls: Mutex<Vec<String>>,
    /// The heads and bodies of the calls.
    pub(super) texts: Mutex<Vec<String>>,
    answer: Mutex<Answerer>,
    n_connections: AtomicUsize,
}

/// Returns a refusal by the service.
pub(super) fn refusal(status: u16, code: &str) -> Said {
    let body = json!({"status": status, "code": code, "detail": "The stub said so."});
    Said::Reply(status, body)
}

/// Returns a refusal of a size, which says the size that would do.
pub(super) fn refusal_with_limit(status: u16, code: &str, limit: u64) -> Said {
    let limit = limit.to_string();
    let body = json!({"status": status, "code": code, "detail": "Too many.", "limit": limit});
    Said::Reply(status, body)
}

impl Stub {
    /// Starts a stub that never replies. It keeps its port, so no other test gets it.
    pub(super) fn dead() -> Self {
        let stub = Self::start();
        stub.answer(|_, _| Said::Cut);
        stub
    }

    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let definition = json!({
            "kind": "block", "order": "relaxed", "period": "none", "format": "{value}"
        });
        let answer: Answerer = Box::new(|_, _| Said::GoOn);
        let state = Arc::new(StubState {
            numbers: Mutex::new((1, 1)),
            definition: Mutex::new(definition),
            calls: Mutex::default(),
            texts: Mutex::default(),
            answer: Mutex::new(answer),
            n_connections: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                thread::spawn(move || state.serve(stream));
            }
        });
        Self { state, url }
    }

    /// Lets a test answer the calls from now on.
    pub(super) fn answer(&self, answer: impl FnMut(&StubState, &str) -> Said + Send + 'static) {
        *self.state.answer.lock().unwrap() = Box::new(answer);
    }

    /// Lets the first call that is wanted be answered by this.
    pub(super) fn answer_once(&self, said: Said, is_wanted: fn(&str) -> bool) {
        let mut said = Some(said);
        self.answer(move |_, call| {
            if is_wanted(call) {
                return said.take().unwrap_or(Said::GoOn);
            }
            Said::GoOn
        });
    }

    /// Changes a field of the definition.
    pub(super) fn define(&self, field: &str, value: &str) {
        self.state.definition.lock().unwrap()[field] = Value::from(value);
    }

    pub(super) fn set_step(&self, step: i64) {
        self.state.numbers.lock().unwrap().1 = step;
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.state.calls.lock().unwrap().clone()
    }

    /// Returns the calls for numbers, and forgets all calls.
    pub(super) fn take_posts(&self) -> Vec<String> {
        let calls = std::mem::take(&mut *self.state.calls.lock().unwrap());
        calls.into_iter().filter(|call| is_post(call)).collect()
    }

    pub(super) fn n_posts(&self) -> usize {
        self.calls().iter().filter(|call| is_post(call)).count()
    }

    pub(super) fn n_connections(&self) -> usize {
        self.state.n_connections.load(Ordering::Acquire)
    }

    pub(super) fn texts(&self) -> Vec<String> {
        self.state.texts.lock().unwrap().clone()
    }
}

impl Stub {
    /// Returns from when on nothing was stamped, as the last call said that gave a worker id back.
    pub(super) fn unused_from_ms(&self) -> i64 {
        let texts = self.texts();
        let mut bodies = texts.iter().rev().filter_map(|text| {
            let (_, body) = text.rsplit_once('\n')?;
            let body: Value = serde_json::from_str(body).ok()?;
            body.get("unused_from_ms")?.as_i64()
        });
        bodies.next().unwrap()
    }
}

pub(super) fn is_post(call: &str) -> bool {
    call.starts_with("POST")
}

impl StubState {
    /// Takes numbers, as if a reply had been lost.
    pub(super) fn lose(&self, count: i64) {
        self.take(count);
    }

    fn take(&self, count: i64) -> (i64, i64, i64) {
        let mut numbers = self.numbers.lock().unwrap();
        let (first, step) = *numbers;
        numbers.0 += count * step;
        (first, first + (count - 1) * step, step)
    }

    fn serve(&self, stream: TcpStream) {
        self.n_connections.fetch_add(1, Ordering::AcqRel);
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut writer = stream;
        while let Some((head, body)) = request(&mut reader) {
            let mut words = head.split(' ');
            let (method, target) = (words.next().unwrap(), words.next().unwrap());
            let call = format!("{method} {}", target.rsplit('/').next().unwrap());
            self.texts.lock().unwrap().push(format!("{head}\n{body}"));
            self.calls.lock().unwrap().push(call.clone());
            let said = {
                let mut answer = self.answer.lock().unwrap();
                (*answer)(self, &call)
            };
            let (status, body) = match said {
                Said::Cut => return,
                Said::Reply(status, body) => (status, body),
                Said::GoOn => self.reply(method, target),
            };
            let text = if status == 204 {
                String::new()
            } else {
                body.to_string()
            };
            let length = text.len();
            let head = format!("HTTP/1.1 {status} Stub\r\nContent-Length: {length}\r\n\r\n");
            if writer
                .write_all(format!("{head}{text}").as_bytes())
                .is_err()
            {
                return;
            }
        }
    }

    fn reply(&self, method: &str, target: &str) -> (u16, Value) {
        if target.starts_with("/v1/workers") {
            return (
                404,
                json!({"code": "route_not_found", "detail": "The test must answer."}),
            );
        }
        if method == "GET" {
            let definition = self.definition.lock().unwrap().clone();
            return (200, json!({"sequence": "orders", "definition": definition}));
        }
        let query = target.split_once('?').map_or("", |(_, query)| query);
        let parameter = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let size = parameter("count").or_else(|| parameter("size"));
        let count: i64 = size.map_or(1, |size| size.parse().unwrap());
        let (first, last, step) = self.take(count);
        let mut body = json!({"sequence": "orders", "period": null});
        if size.is_none() {
            body["value"] = Value::from(first.to_string());
            body["id"] = Value::from(first.to_string());
            return (200, body);
        }
        let range = json!({
            "first": first.to_string(), "last": last.to_string(), "count": count, "step": step
        });
        if parameter("size").is_some() {
            let mut block = range;
            block["period"] = Value::Null;
            return (200, block);
        }
        if parameter("ids") != Some("false") {
            let values = (0..count).map(|index| format!("#{}", first + index * step));
            body["ids"] = values.collect();
        }
        body["ranges"] = Value::from(vec![range]);
        (200, body)
    }
}

/// Reads a request: its head and its body.
fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, String)> {
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(line);
        head.push('\n');
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((head, String::from_utf8(body).unwrap()))
}
