# The server in an image without anything else. The image stands in for that of the official emulator:
# the same ports, variables and log lines (docs/emulator.md).
#
# Not built in our checks, for lack of a Docker daemon. An image of 30 MB or more is not built: its program
# has grown too much (xtask/src/package.rs).
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
# glibc is linked statically, so the program needs no file of the system.
ENV RUSTFLAGS="-C target-feature=+crt-static"
RUN cargo build --profile dist --locked --target "$(rustc -vV | sed -n 's/^host: //p')" \
 && mkdir -p /image/data /image/tmp /image/etc/ssl/certs \
 && cp target/*/dist/perihelion /image/perihelion \
 && cp /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ \
 && test "$(du -sb /image | cut -f1)" -lt 30000000

FROM scratch
COPY --from=build --chown=10001:10001 /image /
USER 10001
# In a container the server has to listen on all interfaces. The well-known key is then allowed only on
# purpose: give PERIHELION_KEY or KEY_FILE for anything but tests.
# ENABLE_EXPLORER=true starts the dashboard, which listens on 127.0.0.1 only: see docs/emulator.md for how to
# reach it.
ENV PERIHELION_HOST=0.0.0.0 PERIHELION_ALLOW_WELL_KNOWN_KEY=1 PERIHELION_HEALTH_PORT=8080 \
    XDG_CACHE_HOME=/tmp
EXPOSE 8081 8080
ENTRYPOINT ["/perihelion", "server"]
