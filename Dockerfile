# Atoll in one container: server, engine, gVisor, and the sandbox images, built here so that the container starts at once and
# without a network. Works with BuildKit and without. Run it as compose.yaml does.

# What the build and the container stand on. The three may come from a registry of your own.
ARG BUILD_BASE=debian:bookworm-slim
ARG RUN_BASE=debian:bookworm-slim
ARG JDK=eclipse-temurin:25.0.3_9-jdk
ARG GO=golang:1.26.8-bookworm

FROM ${JDK} AS jdk
FROM ${GO} AS go

# --- Builds: by the launcher's own code, in the order of how seldom each part changes -----------------------------------------

FROM ${BUILD_BASE} AS build
WORKDIR /opt/atoll/source
COPY scripts/common.sh scripts/
# The slim image lacks the folder of manual pages, without which Debian's Java (below Maven) does not install.
RUN ["bash", "-ec", "mkdir -p /usr/share/man/man1; source scripts/common.sh; install_packages"]
COPY --from=jdk /opt/java/openjdk /opt/java/openjdk
COPY --from=go /usr/local/go /usr/local/go
ENV JAVA_HOME=/opt/java/openjdk GO=/usr/local/go/bin/go GOTOOLCHAIN=local

COPY images images
# In the container nothing is there to build images with, so those that it is to have are brought along.
ARG RECIPES="typescript-bun python"
RUN set -e; for recipe in $RECIPES; do images/build.sh "$recipe"; done; rm -rf /var/cache/atoll/debian

COPY node/runsc node/runsc
RUN node/runsc/build.sh

COPY . .
RUN ./atoll build --java-runtime /opt/atoll/java

# --- What runs ----------------------------------------------------------------------------------------------------------------

FROM ${RUN_BASE}
# A user id of our own, the same in every build: it owns files in the volume.
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends curl iproute2 jq procps tini \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 870 atoll \
 && useradd --system --uid 870 --gid atoll --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin atoll
COPY --from=build /var/cache/atoll/images /var/cache/atoll/images
COPY --from=build /opt/atoll/java /opt/atoll/java
COPY --from=build /var/cache/atoll/runsc /var/cache/atoll/runsc
COPY --from=build /var/cache/atoll/node /var/cache/atoll/node
COPY --from=build /var/cache/atoll/agent /var/cache/atoll/agent
COPY --from=build /var/cache/atoll/server /var/cache/atoll/server
COPY --from=build /var/cache/atoll/builds /var/cache/atoll/builds
COPY LICENSE /opt/atoll/LICENSE
COPY images /opt/atoll/images
COPY scripts /opt/atoll/scripts
COPY deploy/container/entrypoint.sh /opt/atoll/deploy/container/
COPY atoll /opt/atoll/atoll
RUN ln -s /opt/atoll/atoll /usr/local/bin/atoll
ENV ATOLL_BUILDS=/var/cache/atoll/builds ATOLL_DATA_DIR=/var/lib/atoll ATOLL_PORT=8080 LANG=C.UTF-8
VOLUME /var/lib/atoll
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=5s --retries=6 --start-period=60s CMD curl -fsS -o /dev/null "http://127.0.0.1:$ATOLL_PORT/healthz"
ENTRYPOINT ["tini", "--", "/opt/atoll/deploy/container/entrypoint.sh"]
