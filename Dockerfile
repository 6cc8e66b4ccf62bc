# sgdec with all extras, for the CPU: docker build -t sgdec . && docker run --rm -v "$PWD:/work" sgdec decode --help
FROM python:3.11-slim
COPY . /opt/sgdec
# An index with builds of PyTorch for the CPU alone makes the image several gigabytes smaller:
# docker build --build-arg TORCH_INDEX_URL=... -t sgdec .
ARG TORCH_INDEX_URL=""
RUN PIP_EXTRA_INDEX_URL="$TORCH_INDEX_URL" pip install --no-cache-dir -c /opt/sgdec/constraints.txt "/opt/sgdec[all]"
RUN useradd --create-home sgdec
USER sgdec
WORKDIR /work
ENTRYPOINT ["sgdec"]
CMD ["--help"]
