"""What a submission finds installed: versions by library. Written by `python -m scripts.library_pages`."""


def _versions(text: str) -> dict[str, str]:
    pairs = (word.split("==") for word in text.split())
    return {name: versions.replace("/", " ") for name, versions in pairs}


LIBRARIES = _versions("""
accelerate==1.15.0 aiohappyeyeballs==2.7.1 aiohttp==3.14.5 aiosignal==1.4.0 albucore==0.0.24 albumentations==2.0.8
annotated-doc==0.0.7 annotated-types==0.8.0 anyio==4.16.0 asttokens==3.0.2 async-timeout==5.0.1 attrs==26.1.0
certifi==2026.10.18 cffi==2.1.1 charset-normalizer==3.5.2 click==8.5.1 cloudpickle==3.1.2 colorama==0.4.6 comm==0.2.3
contourpy==1.3.3/1.4.0 cryptography==50.0.2 cwevals==0.0.1b1 cycler==0.12.1 distro==1.9.0 einops==0.8.2 executing==2.3.0
filelock==4.2.11 fonttools==4.68.0 frozenlist==1.8.0 fsspec==2026.9.0 gguf==0.19.0 googleapis-common-protos==1.76.0
h11==0.16.0 hf-xet==1.8.0 httpcore==1.0.9 httpcore2==2.16.2 httpx==0.28.1 httpx2==2.16.2 httpx2-jsfetch==1.0
huggingface-hub==2.4.0 idna==3.20 ipython==9.18.1 ipython-pygments-lexers==1.1.1 ipywidgets==8.1.9 jedi==0.20.1
jinja2==3.1.6 joblib==1.6.0 kiwisolver==1.5.1 lightning==2.6.6 lightning-utilities==0.15.3 llvmlite==0.50.0
markdown-it-py==4.3.0 markupsafe==3.0.4 matplotlib==3.11.2 matplotlib-inline==0.2.2 mdurl==0.1.2 mpmath==1.3.0
multidict==7.2.1 narwhals==2.28.0 networkx==3.6.1/3.7 numba==0.68.1 numpy==2.4.6/2.5.5 omegaconf==2.4.0
opencv-python-headless==5.0.0.93 opentelemetry-api==1.45.2 opentelemetry-exporter-http-transport==0.66b2
opentelemetry-exporter-otlp-common==0.66b2 opentelemetry-exporter-otlp-proto-common==1.45.2
opentelemetry-exporter-otlp-proto-http==1.45.2 opentelemetry-proto==1.45.2 opentelemetry-sdk==1.45.2
opentelemetry-semantic-conventions==0.66b2 packaging==26.3 pandas==2.3.3 parso==0.8.7 peft==0.21.2 pexpect==4.9.0
pillow==13.0.0 platformdirs==4.14.5 prompt-toolkit==3.0.53 propcache==0.5.4 protobuf==7.36.2 psutil==7.2.2
ptyprocess==0.7.0 pure-eval==0.2.4 pycparser==3.12 pydantic==2.14.3 pydantic-core==2.50.4 pygments==2.21.0
pyparsing==3.3.3 python-dateutil==2.9.0.post0 pytorch-lightning==2.6.6 pytz==2026.6 pyyaml==6.0.3 regex==2026.11.15
requests==2.34.2 rich==15.0.0 safetensors==0.8.0 scikit-learn==1.9.1 scipy==1.17.1/1.18.1 seaborn==0.13.2
sentencepiece==0.2.3 setuptools==84.2.1 shellingham==1.5.4 simsimd==6.5.16 six==1.17.0 sniffio==1.3.1 stack-data==0.6.3
stringzilla==5.3.2 sympy==1.14.0 tabulate==0.10.0 threadpoolctl==3.8.0 timm==1.0.31 tokenizers==0.23.3 torch==2.14.1
torchmetrics==1.9.0 torchvision==0.29.1 tqdm==4.70.1 traitlets==5.16.1 transformers==5.23.0 triton==3.8.0
truststore==0.10.5 typer==0.29.2 typing-extensions==4.16.0 typing-inspection==0.4.5 tzdata==2026.6 urllib3==2.8.0
wandb==0.31.0 wcwidth==0.9.4 xxhash==4.1.0 yarl==1.25.1
""")

# Sets of older libraries, which a competition may name, by their name.
OLDER_SETS = {
    "2023": _versions("""
accelerate==0.25.0 aiohappyeyeballs==2.7.1 aiohttp==3.14.5 aiosignal==1.4.0 albumentations==1.3.1
antlr4-python3-runtime==4.9.3 appdirs==1.4.4 asttokens==3.0.2 attrs==26.1.0 certifi==2026.10.18
charset-normalizer==3.5.2 click==8.5.1 cloudpickle==3.1.2 colorama==0.4.6 comm==0.2.3 contourpy==1.3.3 cycler==0.12.1
decorator==5.3.1 docker-pycreds==0.4.0 einops==0.7.0 executing==2.3.0 filelock==4.2.12 fonttools==4.68.0
frozenlist==1.8.0 fsspec==2024.12.0 gitdb==4.0.12 gitpython==3.2.1 huggingface-hub==0.20.1 idna==3.20 imageio==2.38.1
ipython==8.18.1 ipywidgets==8.1.1 jedi==0.20.1 jinja2==3.1.6 joblib==1.6.0 kiwisolver==1.5.1 lazy-loader==0.6
lightning==2.1.3 lightning-utilities==0.15.3 markupsafe==3.0.4 matplotlib==3.8.2 matplotlib-inline==0.2.2 mpmath==1.3.0
multidict==7.2.1 networkx==3.6.1/3.7 numpy==1.26.2 omegaconf==2.3.0 opencv-python-headless==4.8.1.78 packaging==24.2
pandas==2.1.4 parso==0.8.7 pexpect==4.9.0 pillow==10.1.0 prompt-toolkit==3.0.53 propcache==0.5.4 protobuf==4.25.9
psutil==7.2.2 ptyprocess==0.7.0 pure-eval==0.2.4 pygments==2.21.0 pyparsing==3.3.3 python-dateutil==2.8.2
pytorch-lightning==2.1.3 pytz==2026.6 pyyaml==6.0.3 qudida==0.0.4 regex==2026.11.15 requests==2.31.0 safetensors==0.4.1
scikit-image==0.26.0 scikit-learn==1.3.2 scipy==1.11.4 seaborn==0.13.0 sentry-sdk==2.75.0 setproctitle==1.3.8
setuptools==69.0.3 six==1.17.0 smmap==5.0.3 stack-data==0.6.3 sympy==1.14.0 tabulate==0.9.0 threadpoolctl==3.8.0
tifffile==2026.3.3 timm==0.9.12 tokenizers==0.15.2 torch==2.1.2 torchmetrics==1.2.1 torchvision==0.16.2 tqdm==4.66.1
traitlets==5.16.1 transformers==4.36.2 triton==2.1.0 typing-extensions==4.16.0 tzdata==2026.6 urllib3==2.8.0
wandb==0.16.1 wcwidth==0.9.4 yarl==1.25.1
""")
}
PYTHON_OF_SETS = "3.11"
