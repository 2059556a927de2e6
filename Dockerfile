# A server of models: `docker build -t transduce .`, then
#
#   docker run --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges \
#       -p 127.0.0.1:5000:5000 -v "$PWD/runs/x/model:/model:ro" transduce serve -m /model --host 0.0.0.0
#
# It needs no write access except to /tmp. The engine native is compiled into the image, for all processors of the
# architecture; it needs no torch. For a GPU, and for the other engines, build with --build-arg EXTRAS="serve train" and
# --build-arg PACKAGES="gcc libc6-dev", and run with --gpus all --tmpfs /tmp:exec: Triton compiles its kernels at the
# start and loads them from /tmp.
FROM python:3.12-slim-bookworm AS build
ARG EXTRAS=serve
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE requirements.lock torch.lock ./
COPY .ci/pinned.py ./.ci/
COPY src ./src
# Every package is installed by the hash that the lock files state; older versions of pip ignore hashes of constraints.
RUN python -m venv /opt/transduce \
    && awk '/^[^ #]/ { keep = /^pip==/ } keep' requirements.lock > pip.txt \
    && /opt/transduce/bin/pip install --no-cache-dir --require-hashes --no-deps --requirement pip.txt \
    && python .ci/pinned.py $EXTRAS > pinned.txt \
    && /opt/transduce/bin/pip install --no-cache-dir --require-hashes --constraint requirements.lock \
        --constraint torch.lock --requirement pinned.txt \
    && TRANSDUCE_PREBUILT=1 /opt/transduce/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/transduce/bin/pip uninstall --yes setuptools

FROM python:3.12-slim-bookworm
ARG PACKAGES=""
RUN if [ -n "$PACKAGES" ]; then \
        apt-get update && apt-get install --yes --no-install-recommends $PACKAGES && rm -rf /var/lib/apt/lists/*; \
    fi
COPY --from=build /opt/transduce /opt/transduce
ENV PATH=/opt/transduce/bin:$PATH HOME=/tmp TRANSDUCE_CACHE=/tmp/transduce PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 5000
# Never through a proxy that the environment names.
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as r; r.build_opener(r.ProxyHandler({})).open('http://127.0.0.1:5000/health', timeout=5)"]
ENTRYPOINT ["transduce"]
CMD ["serve", "--host", "0.0.0.0", "--port", "5000"]
