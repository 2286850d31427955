# The image of Odometer: the program with its time zones, the C library and certificates; no shell.
#
#   docker build -t odometer:0.1.0 .
#   docker build -t odometer:0.1.0 --build-arg FEATURES=otlp .   # one that can send spans
#
# A toolchain and Debian 12 to build with, by its digest; nothing of it but files gets further.
FROM rust:1.94.0-bookworm@sha256:365468470075493dc4583f47387001854321c5a8583ea9604b297e67f01c5a4f AS build
# Of cargo, none but those of the shipped program.
ARG FEATURES=
WORKDIR /src
COPY . .
RUN release/root /image \
 && cargo build --release --locked -p odometer --features "$FEATURES" \
 && strip --strip-all -o /odometer target/release/odometer \
 && mkdir /data

# On no other base than what `release/root` has put together.
FROM scratch
LABEL org.opencontainers.image.title="Odometer" \
      org.opencontainers.image.description="Numbers that never repeat, over HTTP, from an ordinary database" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"
COPY --from=build /image /
COPY --from=build /odometer /usr/bin/odometer
# Where the SQLite file of a start without a database URL lies.
COPY --from=build --chown=65532:65532 /data /var/lib/odometer
WORKDIR /var/lib/odometer
USER 65532:65532
ENV ODOMETER_LISTEN=0.0.0.0:8080
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/odometer"]
CMD ["serve"]
