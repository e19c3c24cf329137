"""What kind of failure a text tells of, and which texts never are a cause.

The kinds are those of the `log` document. Texts are matched loosely, since wordings move between releases.
"""

import re

from tui.engines.registry import grammars

WORDS = tuple(grammar.failures for grammar in grammars())
"""The words of each engine, which join the common ones."""


def joined(*alternatives: str) -> re.Pattern[str]:
    """Compile alternatives as one pattern, the empty ones left out."""
    return re.compile("|".join(pattern for pattern in alternatives if pattern) or r"(?!)")


WRAPPER = joined(
    r"died unexpectedly|died, exit code|died with exit code|worker died|exited unexpectedly"
    r"|Process \S+ \(PID: \d+\)|Task finished unexpectedly|See stack trace|See root cause above"
    r"|Error in (?:chat )?completion|Exception in ASGI application|leader \S+ died|^RayTaskError|RayActorError"
    r"|[Ii]nner error is reported as above|(?:thread terminated with exception|following (?:error|exception)\w*):\s*$"
    r"|Worker(?:Wrapper)? exit|^SystemExit|ZMQError|ConnectionResetError|BrokenPipeError|zmq\.error",
    *(words.wrappers for words in WORDS),
)
_BARE_WRAPPER = re.compile(r"^(?:RuntimeError|Exception|asyncio\.exceptions\.CancelledError|CancelledError)(?:: (?:cancelled)?)?$")

CONSEQUENCE = joined(
    r"collective operation timeout|[Cc]onnection (?:closed|reset) by peer|TCPStore|NCCL watchdog|Broken pipe|recvValue failed"
    r"|sendBytes failed"
    r"|remote process exited|ncclRemoteError|ProcessGroupNCCL.*abort|heartbeat|Watchdog caught|Gloo connectFullMesh|Socket Timeout"
    r"|Command '\[?'(?:\S*/)?(?:bash|sh|python[\d.]*|torchrun|srun)'?[, ].*non-zero exit status"
    r"|object has no attribute '(?:shutdown|engine_core|model_executor|workers|_?finalizer|resources)'"
    r"|destroy_process_group|cannot schedule new futures|Event loop is closed|Transport endpoint|Separation failed|stop_profile",
    *(words.consequences for words in WORDS),
)

CLEANUP = re.compile(r"Exception ignored in|Exception in thread .*usage|leaked|atexit|resource_tracker")

ORDERED = re.compile(r"^(?:KeyboardInterrupt|SystemExit: ?(?:0|130|143)?$|GracefulExit)")

RULES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, joined(pattern, *(words.kinds.get(kind, "") for words in WORDS)))
    for kind, pattern in (
        (
            "gpu_memory_in_use",
            r"not enough free (?:GPU )?memory.*other process|(?:TPU|[Dd]evice) is already in use by process",
        ),
        (
            "gpu_lost",
            r"uncorrectable|fallen off the bus|GPU is lost|GPU_IS_LOST|NVLink (?:error|fatal)|hardware error"
            r"|Xid.*\b(?:48|63|64|74|79|94|95|119)\b"
            r"|(?i:device[_ ](?:is |has been )?lost)|hipErrorNoDevice.*lost|CUDA_ERROR_ECC|ECC error",
        ),
        (
            "gpu_memory_fault",
            r"Memory access fault by GPU|MEMORY_APERTURE_VIOLATION|HSA_STATUS_ERROR_MEMORY"
            r"|Page not present or supervisor privilege",
        ),
        (
            "shm_too_small",
            r"/dev/shm[^\n]*(?:No space left|size)|No space left on device[^\n]*/dev/shm"
            r"|shared memory segment[^\n]*(?:No space|error)"
            r"|Bus error|unable to open shared memory object|insufficient shared memory|Unexpected bus error encountered in worker"
            r"|unable to (?:allocate|write to) (?:file|shared memory)[^\n]*(?:shm|torch_)",
        ),
        ("nccl", r"ibv_\w+ (?:failed|error)|ibv_\w+\(?\)?[^\n]*(?:failed|[Cc]annot allocate)|RLIMIT_MEMLOCK|memlock"),
        ("disk_full", r"No space left on device|ENOSPC|os error 28|Disk quota exceeded|[Nn]ot enough (?:free )?disk space"),
        (
            "kv_cache_too_small",
            r"No space in KV cache|requested memory for kv|kv cache (?:allocation )?is less than"
            r"|not enough (?:memory|space) (?:for|to (?:allocate|hold)).*KV"
            r"|KV cache (?:memory )?(?:is )?(?:too small|insufficient)"
            r"|available KV cache memory.*(?:negative|<= ?0)",
        ),
        (
            "cuda_oom",
            r"torch\.(?:cuda\.)?OutOfMemoryError|(?:CUDA|HIP|XPU|NPU|GPU) out of memory|CUDA error: out of memory"
            r"|hipErrorOutOfMemory|CUDA (?:driver error|Error): out of memory"
            r"|cudaErrorMemoryAllocation|CUDA out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY"
            r"|cudaMalloc failed: out of memory|UR_RESULT_ERROR_OUT_OF_\w+|ZE_RESULT_ERROR_OUT_OF_\w+"
            r"|RESOURCE_EXHAUSTED(?!.*(?:message larger|quota|[Rr]ate))|(?:HPU|HBM|TPU) out of memory"
            r"|Ran out of memory in memory space hbm"
            r"|rtMalloc\w*[^\n]*(?:failed|207001)|aclrtMalloc\w*[^\n]*fail|PT_DEVMEM[^\n]*[Aa]llocation failed"
            r"|NCCL WARN Cuda failure.*out of memory|Failed to CUDA [cm]alloc|hipMalloc.*out of memory",
        ),
        (
            "host_oom_or_killed",
            r"exit code:? -9|exitcode=-9|exited with code -9|killed by signal: Killed"
            r"|[Ee]xit(?:ed with)? code 137|\b137\b.*[Kk]illed|OOM ?[Kk]illed|oom-kill"
            r"|Out of memory: Killed process|low on memory|memory pressure"
            r"|MemoryError|Cannot allocate memory|DefaultCPUAllocator|can't allocate memory|\[Errno 12\]|std::bad_alloc"
            r"|killed by (?:the )?(?:OOM|signal 9|SIGKILL)|signal SIGKILL|SIGKILL|OutOfMemoryError.*[Rr]ay|node running low"
            r"|^Killed$",
        ),
        (
            "killed_by_supervisor",
            r"DUE TO TIME LIMIT|DUE TO PREEMPTION|CANCELLED AT|start operation timed out|Liveness probe failed|Startup probe failed"
            r"|failed (?:liveness|startup) probe|stop-sigterm timed out|Killing container|time ?limit (?:reached|exceeded)",
        ),
        (
            "max_model_len_too_large",
            r"max_seq_len.*exceeds|context[_ ]length.*(?:greater|longer) than|longer than the (?:derived|maximum)",
        ),
        (
            "not_enough_gpus",
            r"number of available GPUs|No (?:CUDA|HIP|XPU|HPU|NPU|TPU) (?:GPU|device|chip)s are available|Device acquire failed"
            r"|invalid device ordinal|tensor parallel size.*(?:GPUs|devices)|GPUs? (?:are|is) not enough|required GPUs exceeds"
            r"|requires? \d+ GPUs|device >= 0 && device < num_gpus|not enough (?:CPU )?cores|insufficient (?:CPU )?cores"
            r"|less than the number of visible devices|local rank \d+ is out of bounds",
        ),
        (
            "ray_placement",
            r"[Cc]annot provide a placement group|placement group.*(?:within|timed? out|could not|cannot|infeasible)"
            r"|Current node has no GPU available|No available node types can fulfill|Not enough resources to allocate"
            r"|ray cluster.*(?:not enough|only has)"
            r"|Waiting for creating a placement group|does not allocate any GPUs on the driver",
        ),
        (
            "driver_mismatch",
            r"[Ee]rror 80[234]\b|could not select device driver|unsupported display driver|system not yet initialized"
            r"|driver version is insufficient"
            r"|driver on your system is too old|LibRmVersionMismatch|Driver/library version mismatch"
            r"|Can't initialize NVML|NVML Shared Library Not Found|libcuda\.so(?:\.1)?: cannot open|Found no NVIDIA driver"
            r"|forward compatibility"
            r"|PTX was compiled with an unsupported toolchain|cudaErrorInsufficientDriver|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
            r"|HIP driver|amdgpu.*not loaded",
        ),
        (
            "no_kernel_image",
            r"no kernel image is available|kernel image is invalid|only supports? \w+ GPUs or newer"
            r"|sm_\d+ is not compatible|cudaErrorNoKernelImageForDevice|invalid device function"
            r"|hipErrorNoBinaryForGpu|[Nn]o compiled [^\n]*(?:device capability|architecture|for (?:sm|gfx))"
            r"|(?:[Rr]unner|[Kk]ernel|[Cc]utlass|CUTLASS|[Ff]mha|[Ff]lash[Ii]nfer|\.cuh?\b)[^\n]*Unsupported (?:GPU )?arch"
            r"|[Uu]nsupported (?:GPU )?(?:architecture|arch|SM)[: ]+(?:sm_?\d|gfx|\d)|not supported on (?:this )?(?:gfx|sm_?)\d"
            r"|(?:[Kk]ernel|[Bb]inary|code object)[^\n]*not (?:found|built|compiled) for[^\n]*(?:gfx|sm_?)\d"
            r"|not compiled for (?:this )?(?:GPU|arch)|HIP error: invalid device function|hipErrorInvalidDeviceFunction",
        ),
        (
            "compile_error",
            r"[Nn]inja build failed|nvcc fatal|ptxas fatal|ninja: build stopped|PTXASError|CompilationError"
            r"|BackendCompilerFailed|InductorError|[Gg]raph compile failed|synGraphCompile"
            r"|Could not find nvcc|Error building extension|torch\._dynamo\.exc|torch\._inductor\.exc|triton\.compiler\.errors"
            r"|LoweringException"
            r"|Failed to find C compiler|Python\.h: No such file|nvcc not found|NVRTC|nvrtc"
            r"|CUDA_HOME environment variable is not set"
            r"|MLIR pass pipeline|PassManager::run failed|triton\S*\.OutOfResources"
            r"|Command '\['[^']*(?:gcc|g\+\+|cc|clang|nvcc|hipcc|ninja|ptxas)'.*non-zero exit status"
            r"|ptxas (?:error|returned)|cannot find -lcuda|fatal error:.*\.h|hipcc|cuda_fp8\.h",
        ),
        (
            "missing_library",
            r"command not found|Tried to instantiate class '_\w*C\."
            r"|GLIBC(?:XX)?_[\d.]+|undefined symbol|operator torchvision::nms does not exist"
            r"|is already used by a Transformers config"
            r"|cannot import name|No module named|ModuleNotFoundError|ImportError|cannot open shared object file|circular import"
            r"|requires? (?:the )?(?:package|library|following packages)|please install|Please install|version mismatch"
            r"|PackageNotFoundError|Could not run '_\w*C\w*::|'_OpNamespace'|compiled with different CUDA"
            r"|numpy\.dtype size changed|module '[\w.]+' has no attribute|incompatible.*version|is not installed",
        ),
        (
            "port_in_use",
            r"[Aa]ddress already in use|Errno 98\b|EADDRINUSE|port \d+ is (?:already )?(?:used|in use)|Port \d+ .*already in use",
        ),
        (
            "ready_timeout",
            r"engine.*(?:did not|not) (?:become )?ready (?:within|in)|Timed out waiting for engines? to"
            r"|[Ww]aited \d+s \(configured",
        ),
        (
            "hub_auth",
            r"GatedRepo|401 Client Error|403 Client Error|403 Forbidden|401 Unauthorized|gated repo"
            r"|Access to model .* is restricted"
            r"|Invalid username or password|[Ii]nvalid (?:user )?token|You need to be authenticated|awaiting a review"
            r"|not in the authorized list"
            r"|Invalid credentials|token is (?:expired|invalid)",
        ),
        (
            "missing_file",
            r"Repository ?Not ?Found|404 Client Error|Cannot find the config file for|HFValidationError"
            r"|Repo id must be in the form|Cannot find any model weights|referenced in index but missing"
            r"|FileNotFoundError"
            r"|does not appear to have (?:a file|files) named|No such file or directory|Invalid repository ID or local directory"
            r"|Can't load the configuration|EntryNotFoundError(?<!LocalEntryNotFoundError)"
            r"|is not a (?:local folder|valid model identifier|directory)"
            r"|Unrecognised GGUF|no (?:safetensors|weight|config) files? (?:found|were)"
            r"|config\.json.*(?:not found|missing|does not exist)"
            r"|path .* does not exist"
            r"|Incorrect path_or_model_id|Unrecognized model in|[Nn]o such (?:model|file)|No weights? files? found"
            r"|Failed to load the config|No adapter found for",
        ),
        (
            "hub_unreachable",
            r"LocalEntryNotFoundError|[Cc]ouldn't connect to|Name or service not known|MaxRetryError|ConnectionError"
            r"|outgoing traffic has been disabled"
            r"|OfflineModeIsEnabled|Temporary failure in name resolution|ProxyError|ReadTimeout|ConnectTimeout|cached snapshot"
            r"|NewConnectionError"
            r"|SSLError|CERTIFICATE_VERIFY|50[0234] Server Error|429 Client Error|Network is unreachable|HfHubHTTPError"
            r"|getaddrinfo failed|CAS (?:service|client) error|xethub\.hf\.co|429 Too Many Requests"
            r"|Max retries exceeded|Connection refused.*huggingface|we couldn't connect",
        ),
        (
            "unsupported_model",
            r"[Mm]odel architectures? .*(?:not supported|failed to be inspected)|does not recognize this architecture"
            r"|Cannot find model module"
            r"|is not supported for now|GGUF model with architecture \S+ is not supported"
            r"|does not support (?:this model|LoRA|pipeline parallel)"
            r"|Unsupported (?:model|architecture)"
            r"|not (?:yet )?supported by (?:the )?Transformers|trust_remote_code|trust-remote-code|contains custom code"
            r"|requires you to execute"
            r"|model type `?[\w-]+`?.*(?:not|un)(?:recogni|support)|cannot be loaded with.*architecture",
        ),
        (
            "unsupported_quantization",
            r"Unknown (?:ModelOpt )?quant|does not support BitsAndBytes|BitsAndBytes.*not supported"
            r"|quantization method .*(?:not|un)support"
            r"|No [\w ]*(?:MoE|linear|GEMM|quant\w*|[Ff][Pp][48]|[Nn]v[Ff]p4|[Mm]x[Ff]p4|INT4|W4A16)\b[\w ]*(?:backend|kernel)\w* "
            r"(?:\w+ )?(?:support|available|found|match|can)"
            r"|[Qq]uantization (?:scheme|method|config|format).*(?:not|un|does not)\s?(?:match|support|compatible)"
            r"|not supported (?:for|on) (?:the )?(?:current|this) GPU|Minimum capability|not supported on.*capability"
            r"|[Ff]ailed to find a kernel that can implement"
            r"|fp8.*(?:requires|not supported)|FP8.*(?:requires|not supported)"
            r"|is not divisible by (?:weight )?(?:quantization|group|min_thread|block)"
            r"|input_size_per_partition|output_size_per_partition|[Uu]nsupported (?:quant|fp4|fp8|nvfp4|bits)"
            r"|does not match the quantization method|No compressed-tensors compatible scheme"
            r"|not supported for quantization method",
        ),
        (
            "corrupt_checkpoint",
            r"SafetensorError|safetensors_rust|deserializing header|incomplete metadata|HeaderTooLarge|InvalidHeader"
            r"|MetadataIncompleteBuffer"
            r"|not initialized from checkpoint|Unable to load weights from|PytorchStreamReader|central directory|invalid load key"
            r"|Input/output error"
            r"|\[Errno 5\]|Stale file handle|UnpicklingError"
            r"|(?<!or )corrupt(?!ed (?:size|double))"
            r"|checksum|unexpected EOF|Unexpected end of file|[Tt]runcated|EOFError|Ran out of input|consistency check"
            r"|GGUF.*invalid|file size",
        ),
        (
            "shape_mismatch",
            r"exceeds dimension size|size mismatch|must match the size|shape mismatch|param_data\.shape == loaded_weight\.shape"
            r"|KeyError: '?[\w.]*(?:layers|model|weight|bias|experts)"
            r"|no module or parameter named|[Aa]ttempted to load weight|loaded_weight\.shape|expected (?:shape|size)"
            r"|shapes? .* (?:do not|don't|cannot) match"
            r"|The size of tensor a|Unexpected (?:key|weight)|[Ww]eight .*not found in|start \(\d+\) \+ length"
            r"|mismatch.*(?:shape|dimension)|param.*has no attribute 'weight_loader'"
            r"|params_dict",
        ),
        (
            "tokenizer",
            r"[Tt]okenizer class|backend tokenizer|untagged enum|Can't load tokenizer"
            r"|[Tt]okenizer.*(?:not found|does not|failed|error|cannot|has no attribute)"
            r"|convert a slow tokenizer|tiktoken|sentencepiece|SentencePiece|tokenizer\.json|tekken"
            r"|[Cc]hat template.*(?:not|error|invalid|failed)|vocab file"
            r"|chat_template",
        ),
        (
            "bad_argument",
            r"Bfloat16 is only supported|Cannot assign requested address"
            r"|(?<!NCCL )error: (?:unrecognized arguments?|argument|the following arguments|invalid|ambiguous)"
            r"|validation errors? for \w+"
            r"|is not divisible by \d|not valid for this configuration|No valid attention backend"
            r"|invalid (?:reasoning|tool call|tool) parser|must be divisible by|divisible by tensor|invalid (?:int|float|choice)"
            r"|unexpected keyword argument"
            r"|Invalid (?:value|argument|option)"
            r"|(?:is|are) (?:mutually exclusive|not compatible)|not a valid"
            r"|[Mm]ust be (?:in|between|one of|greater|less|positive|>=)|Please (?:set|specify|provide) --"
            r"|--[\w-]+ (?:is|must|requires|cannot)|\bUnknown (?:option|argument|flag)|usage: ",
        ),
        (
            "nccl",
            r"NCCL error|NCCL Error|DistBackendError|ncclUnhandledCudaError|ncclSystemError|ncclInternalError|ncclInvalidUsage"
            r"|unhandled (?:system|cuda) error"
            r"|connectFullMesh failed|Unable to find interface|NCCL WARN|RCCL|Bootstrap : no socket interface|ibv_|NET/IB"
            r"|gloo.*(?:unable|failed)|makeDeviceForHostname|HCCL|Hccl[A-Z]\w+|\bEI000\d\b|[Gg]etting socket times out"
            r"|nccl.*failed",
        ),
        (
            "distributed_timeout",
            r"collective operation timeout|DistStoreError|[Tt]imed out (?:after|waiting for (?:clients|initialization|all))"
            r"|Timeout waiting for|wait timeout after"
            r"|barrier.*tim(?:ed|e) ?out|monitoredBarrier|rendezvous.*(?:tim|fail)|client socket has timed out"
            r"|The client socket has failed to connect|Socket Timeout",
        ),
        (
            "hang",
            r"Detected.*hang|watchdog timeout|Watchdog timeout|TimeoutError: ?$|stuck",
        ),
        (
            "cuda_error",
            r"CUDA error|Cuda (?:error|failure)|CUDA_ERROR|HIP error|cudaError|hipError|illegal memory access"
            r"|unspecified launch failure|CUBLAS_STATUS"
            r"|CUDNN_STATUS"
            r"|device-side assert|CUDA driver error|misaligned address|an illegal instruction|cuBLAS|AcceleratorError|hipblas"
            r"|HIPBLAS|cutlass.*(?:[Ee]rror|fail)|forked subprocess"
            r"|HSA_STATUS_ERROR|NPU (?:function )?error|AclNN_\w+|(?i:aicore)|ERR00100 PTA"
            r"|Native API failed|UR_RESULT_ERROR|ZE_RESULT_ERROR"
            r"|Triton Error \[CUDA\]|c10::Error.*(?:CUDA|HIP)|launch timed out",
        ),
        (
            "worker_died",
            r"Segfault|Segmentation fault|SIGSEGV|SIGABRT|SIGBUS|Fatal Python error|Caught signal \d+|exitcode=-\d"
            r"|double free or corruption|free\(\): |malloc\(\): |stack smashing"
            r"|died unexpectedly|worker died|Worker.*exit"
            r"|ActorDiedError|The actor (?:died|is dead)",
        ),
        ("engine_died", ""),
    )
)


_LOCAL_SERVICE = re.compile(
    r"(?i:lmcache|mooncake|redis|etcd|\bnixl|\bgcs\b|gcs_server|ray (?:head|cluster)|kv[ _-]?(?:store|connector|transfer))"
    r"|\b(?:localhost|127\.0\.0\.1|10\.\d+\.\d+\.\d+|192\.168\.\d+\.\d+|172\.(?:1[6-9]|2\d|3[01])\.\d+\.\d+)[:/' ]"
)
_HUB = re.compile(r"(?i:huggingface|hf\.co|modelscope|hub)")


def is_local_service(text: str) -> bool:
    """Tell whether a connection failed to a service of the deployment's own network, and not to the model hub."""
    return _LOCAL_SERVICE.search(text) is not None and _HUB.search(text) is None


def kind_of(text: str) -> str:
    """Return the kind of failure that a text tells of, `other` if no rule fits."""
    for kind, pattern in RULES:
        if pattern.search(text):
            return "other" if kind == "hub_unreachable" and is_local_service(text) else kind
    return "other"


def is_wrapper(text: str) -> bool:
    """Tell whether this only says that something else went wrong."""
    return WRAPPER.search(text) is not None or _BARE_WRAPPER.match(text) is not None
