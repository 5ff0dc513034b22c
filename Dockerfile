# Images of the coordinator and of the worker, on Debian 12. deploy/compose.yaml builds and runs them.
#
#   docker build --target coordinator -t tally-coordinator .
#   docker build --target worker -t tally-worker .
#
# Nothing here needs BuildKit: Debian's docker.io builds it as well.

# The packages that the compiler needs; deploy/install-deps has the list.
FROM debian:bookworm-slim AS packages
COPY deploy/install-deps /src/deploy/
RUN /src/deploy/install-deps

FROM packages AS build
COPY . /src
WORKDIR /src
RUN cmake --preset release -DBUILD_TESTING=OFF && cmake --build --preset release
RUN for component in coordinator worker tools; do \
        DESTDIR=/install cmake --install build/release --component "$component" --strip || exit; \
    done

# The system below the programs: Debian with their libraries, without what a finished image does not
# use: package managers, their perl and C++, LAPACK (only OpenBLAS is called). The list of installed
# packages stays, for scanners. The next stage makes a single layer of it, because files that a layer
# removes from an earlier one still take up space.
FROM debian:bookworm-slim AS system
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        ca-certificates libcurl4 libgnutls30 libjansson4 libmicrohttpd12 libopenblas0-pthread libpq5 libsqlite3-0 libzip4 \
    && dpkg --purge --force-depends --force-remove-essential tzdata e2fsprogs libext2fs2 \
    && dpkg --purge --force-depends --force-remove-essential --force-remove-protected \
        apt libapt-pkg6.0 libstdc++6 perl-base \
    && rm -rf /usr/lib/*/openblas-pthread/liblapack.so.* /var/lib/apt /var/cache/* /var/log/* /tmp/* \
    && useradd --system --uid 10001 --user-group --no-create-home --home-dir /var/lib/tally tally \
    && install -d -o tally -g tally -m 700 /var/lib/tally \
    && install -d -m 755 /data

FROM scratch AS runtime
COPY --from=system / /
ENV PATH=/usr/local/bin:/usr/bin:/bin TALLY_DATA_DIR=/data
WORKDIR /var/lib/tally
# A number, so that container engines can see that it is not root.
USER 10001:10001
ARG VERSION=0.15.0
LABEL org.opencontainers.image.version=$VERSION \
    org.opencontainers.image.licenses=Apache-2.0 \
    org.opencontainers.image.vendor=Tally

FROM runtime AS coordinator
LABEL org.opencontainers.image.title=tally-coordinator \
    org.opencontainers.image.description="Coordinates communication-efficient federated optimisation"
COPY --from=build /install/usr/local/bin/tally-coordinator /install/usr/local/bin/tally /usr/local/bin/
COPY --from=build /install/usr/local/share/tally/jobs /usr/local/share/tally/jobs
COPY deploy/health /usr/local/libexec/tally/
# Reachable from outside the container; the coordinator refuses to start there without tokens.
ENV TALLY_LISTEN=0.0.0.0:8080
VOLUME /var/lib/tally
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=3 CMD ["/usr/local/libexec/tally/health", "tally-coordinator"]
ENTRYPOINT ["tally-coordinator"]

FROM runtime AS worker
LABEL org.opencontainers.image.title=tally-worker \
    org.opencontainers.image.description="Runs clients of federated optimisation jobs"
COPY --from=build /install/usr/local/bin/tally-worker /install/usr/local/bin/tally /usr/local/bin/
COPY deploy/health /usr/local/libexec/tally/
# A worker serves no requests; it is healthy when it reaches a coordinator that is ready.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 CMD ["/usr/local/libexec/tally/health", "tally-worker"]
ENTRYPOINT ["tally-worker"]
