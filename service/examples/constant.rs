//! The reference the warm path is measured against: the same actix-web, with the same settings,
//! answering a constant body of the same length to `POST /constant` and to
//! `POST /v1/sequences/orders/next`.
//!
//! `cargo run --release --example constant -- 127.0.0.1:8081 1` (address, workers).

use std::io;
use std::time::Duration;

use actix_web::{App, HttpResponse, HttpServer, web};

const BODY: &str = r#"{"sequence":"orders","period":null,"id":"1000001","value":"1000001"}"#;

async fn constant() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("application/json")
        .body(BODY)
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
        App::new()
            .route("/v1/sequences/orders/next", web::post().to(constant))
            .route("/constant", web::post().to(constant))
    })
    .tcp_nodelay(true)
    .keep_alive(Duration::from_secs(75))
    .client_request_timeout(Duration::from_secs(5))
    .h1_allow_half_closed(false)
    .workers(workers)
    .bind(address)?
    .run()
    .await
}
