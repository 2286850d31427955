//! The reference the warm path is measured against: the same actix-web answers a constant body of
//! the same length to `POST /v1/sequences/orders/next`, before any route is looked for.
//!
//! The warm path answers before the routes, too, so what it takes more than this is its own work.
//! Headers, keep-alive and limits are those of the program.
//!
//! `cargo run --release --example constant -- 127.0.0.1:8081 1` (address, workers).

use std::future::ready;
use std::io;
use std::time::Duration;

use actix_web::dev::Service;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use actix_web::http::{KeepAlive, Method, StatusCode};
use actix_web::{App, HttpResponse, HttpServer};
use futures_util::future::Either;

const PATH: &str = "/v1/sequences/orders/next";
const BODY: &str = r#"{"sequence":"orders","period":null,"id":"1000001","value":"1000001"}"#;

fn constant() -> HttpResponse {
    let mut response = HttpResponse::new(StatusCode::OK).set_body(BODY);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.map_into_boxed_body()
}

#[actix_web::main]
async fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or("127.0.0.1:8081".to_owned());
    let workers = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    eprintln!("listening on http://{address}");
    HttpServer::new(|| {
        App::new().wrap_fn(|request, routes| {
            if request.method() == Method::POST && request.path() == PATH {
                return Either::Left(ready(Ok(request.into_response(constant()))));
            }
            Either::Right(routes.call(request))
        })
    })
    .tcp_nodelay(true)
    .keep_alive(KeepAlive::Os)
    .client_request_timeout(Duration::from_secs(5))
    .h1_allow_half_closed(false)
    .workers(workers)
    .bind(address)?
    .run()
    .await
}
