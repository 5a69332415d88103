ARG PYTHON_VERSION=3.12

FROM python:${PYTHON_VERSION}-slim AS build
WORKDIR /src
RUN python -m venv /opt/llmdsim
COPY pyproject.toml README.md LICENSE ./
COPY llmdsim llmdsim
COPY twisted twisted
RUN /opt/llmdsim/bin/pip install --no-cache-dir --disable-pip-version-check .

FROM python:${PYTHON_VERSION}-slim
LABEL org.opencontainers.image.title="llmdsim" \
      org.opencontainers.image.description="A vLLM server without a model" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/llmdsim /opt/llmdsim
COPY etc /etc/llmdsim
# HOME: the user below has no home directory, and any other user may be asked for (--user, runAsUser). Tokenizers from
# the hub are kept in /tmp/.cache/huggingface, so that a volume there (or at HF_HUB_CACHE) saves the next start asking.
ENV PATH=/opt/llmdsim/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1
# As root, so that a read-only container has both: Twisted's plugin cache, and bytecode of the standard library
# (the base image ships none), without which every start compiles it again.
RUN twistd --help > /dev/null && llmdsim --version \
    && python -m compileall -q -x 'site-packages|idlelib|lib2to3|tkinter|turtledemo|/test/' \
       "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"

USER 65532:65532
EXPOSE 8000
STOPSIGNAL SIGTERM
# Finds the port and TLS among the flags of process 1. Where that is not enough (set by a file, another address):
# docker run -e LLMDSIM_HEALTH_URL=https://127.0.0.1:8443/health ...
HEALTHCHECK --interval=15s --timeout=5s --start-period=15s --retries=3 CMD ["python", "-I", "-c", "import os, re, ssl, urllib.request as r; r.build_opener(r.ProxyHandler({}), r.HTTPSHandler(context=ssl._create_unverified_context())).open(os.environ.get('LLMDSIM_HEALTH_URL') or (lambda line: 'http%s://127.0.0.1:%s/health' % ('s' * bool(re.search('--(self.signed|ssl.certfile)', line)), ['8000', *re.findall('--port.([0-9]+)', line)][-1]))(open('/proc/1/cmdline').read()), timeout=4)"]
ENTRYPOINT ["llmdsim"]
