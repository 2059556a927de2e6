# A server of models: `docker build -t transduce .`, then
#
#   docker run --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges \
#       -p 127.0.0.1:5000:5000 -v "$PWD/runs/x/model:/model:ro" transduce serve -m /model --host 0.0.0.0
#
# It needs no write access except to /tmp. The engine native is compiled into the image, for all processors of the
# architecture. For a GPU, build with --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 and
# --build-arg PACKAGES="gcc libc6-dev", and run with --gpus all --tmpfs /tmp:exec: Triton compiles its kernels at the
# start and loads them from /tmp.
FROM python:3.12-slim-bookworm AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE constraints.txt requirements.lock ./
COPY src ./src
# The lock has the packages of development too; here it only tells the versions.
RUN python -m venv /opt/transduce \
    && /opt/transduce/bin/pip install --no-cache-dir --index-url "$TORCH_INDEX" "$(grep '^torch==' constraints.txt)" \
    && grep '^[^ ]*==' requirements.lock | tr -d '\\' > versions.txt \
    && TRANSDUCE_PREBUILT=1 /opt/transduce/bin/pip install --no-cache-dir --constraint versions.txt '.[serve]'

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
