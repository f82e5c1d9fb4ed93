# SPDX-License-Identifier: MIT
"""The facts of LocalAI's backend contract, one line each, as of 2026-08-22.

Written from the facts, not read from the .proto: a slip in one of the two shows itself. No logic here.
"""

# method, request, response; "stream" before a type means many of them
RPCS = """
Health                     HealthMessage                        Reply
Free                       HealthMessage                        Result
Predict                    PredictOptions                       Reply
LoadModel                  ModelOptions                         Result
PredictStream              PredictOptions                       stream Reply
Embedding                  PredictOptions                       EmbeddingResult
TokenizeString             PredictOptions                       TokenizationResponse
Detokenize                 DetokenizeRequest                    DetokenizeResponse
Status                     HealthMessage                        StatusResponse
Rerank                     RerankRequest                        RerankResult
TokenClassify              TokenClassifyRequest                 TokenClassifyResponse
Score                      ScoreRequest                         ScoreResponse
GetMetrics                 MetricsRequest                       MetricsResponse
ModelMetadata              ModelOptions                         ModelMetadataResponse

GenerateImage              GenerateImageRequest                 Result
UpscaleImage               UpscaleImageRequest                  Result
GenerateVideo              GenerateVideoRequest                 Result
Generate3D                 Generate3DRequest                    Result
AudioTranscription         TranscriptRequest                    TranscriptResult
AudioTranscriptionStream   TranscriptRequest                    stream TranscriptStreamResponse
AudioTranscriptionLive     stream TranscriptLiveRequest         stream TranscriptLiveResponse
TTS                        TTSRequest                           Result
TTSStream                  TTSRequest                           stream Reply
SoundGeneration            SoundGenerationRequest               Result
Detect                     DetectOptions                        DetectResponse
SoundDetection             SoundDetectionRequest                SoundDetectionResponse
Depth                      DepthRequest                         DepthResponse
FaceVerify                 FaceVerifyRequest                    FaceVerifyResponse
FaceAnalyze                FaceAnalyzeRequest                   FaceAnalyzeResponse
VoiceVerify                VoiceVerifyRequest                   VoiceVerifyResponse
VoiceAnalyze               VoiceAnalyzeRequest                  VoiceAnalyzeResponse
VoiceEmbed                 VoiceEmbedRequest                    VoiceEmbedResponse
StoresSet                  StoresSetOptions                     Result
StoresDelete               StoresDeleteOptions                  Result
StoresGet                  StoresGetOptions                     StoresGetResult
StoresFind                 StoresFindOptions                    StoresFindResult
VAD                        VADRequest                           VADResponse
Diarize                    DiarizeRequest                       DiarizeResponse
AudioEncode                AudioEncodeRequest                   AudioEncodeResult
AudioDecode                AudioDecodeRequest                   AudioDecodeResult
AudioTransform             AudioTransformRequest                AudioTransformResult
AudioTransformStream       stream AudioTransformFrameRequest    stream AudioTransformFrameResponse
AudioToAudioStream         stream AudioToAudioRequest           stream AudioToAudioResponse
StartFineTune              FineTuneRequest                      FineTuneJobResult
FineTuneProgress           FineTuneProgressRequest              stream FineTuneProgressUpdate
StopFineTune               FineTuneStopRequest                  Result
ListCheckpoints            ListCheckpointsRequest               ListCheckpointsResponse
ExportModel                ExportModelRequest                   Result
StartQuantization          QuantizationRequest                  QuantizationJobResult
QuantizationProgress       QuantizationProgressRequest          stream QuantizationProgressUpdate
StopQuantization           QuantizationStopRequest              Result
Forward                    stream ForwardRequest                stream ForwardReply
"""

# message: its fields as number name type. A message of the served RPCs that is not here has no fields.
MESSAGES = {
    "HealthMessage": "",
    "PredictOptions": """
         1 Prompt                   string
         2 Seed                     int32
         3 Threads                  int32
         4 Tokens                   int32
         5 TopK                     int32
         6 Repeat                   int32
         7 Batch                    int32
         8 NKeep                    int32
         9 Temperature              float
        10 Penalty                  float
        11 F16KV                    bool
        12 DebugMode                bool
        13 StopPrompts              repeated string
        14 IgnoreEOS                bool
        15 TailFreeSamplingZ        float
        16 TypicalP                 float
        17 FrequencyPenalty         float
        18 PresencePenalty          float
        19 Mirostat                 int32
        20 MirostatETA              float
        21 MirostatTAU              float
        22 PenalizeNL               bool
        23 LogitBias                string
        25 MLock                    bool
        26 MMap                     bool
        27 PromptCacheAll           bool
        28 PromptCacheRO            bool
        29 Grammar                  string
        30 MainGPU                  string
        31 TensorSplit              string
        32 TopP                     float
        33 PromptCachePath          string
        34 Debug                    bool
        35 EmbeddingTokens          repeated int32
        36 Embeddings               string
        37 RopeFreqBase             float
        38 RopeFreqScale            float
        39 NegativePromptScale      float
        40 NegativePrompt           string
        41 NDraft                   int32
        42 Images                   repeated string
        43 UseTokenizerTemplate     bool
        44 Messages                 repeated Message
        45 Videos                   repeated string
        46 Audios                   repeated string
        47 CorrelationId            string
        48 Tools                    string
        49 ToolChoice               string
        50 Logprobs                 int32
        51 TopLogprobs              int32
        52 Metadata                 map<string,string>
        53 MinP                     float
        54 ModelIdentity            string
    """,
    "Message": """
         1 role                     string
         2 content                  string
         3 name                     string
         4 tool_call_id             string
         5 reasoning_content        string
         6 tool_calls               string
    """,
    "ModelOptions": """
         1 Model                    string
         2 ContextSize              int32
         3 Seed                     int32
         4 NBatch                   int32
         5 F16Memory                bool
         6 MLock                    bool
         7 MMap                     bool
         8 VocabOnly                bool
         9 LowVRAM                  bool
        10 Embeddings               bool
        11 NUMA                     bool
        12 NGPULayers               int32
        13 MainGPU                  string
        14 TensorSplit              string
        15 Threads                  int32
        17 RopeFreqBase             float
        18 RopeFreqScale            float
        19 RMSNormEps               float
        20 NGQA                     int32
        21 ModelFile                string
        26 PipelineType             string
        27 SchedulerType            string
        28 CUDA                     bool
        29 CFGScale                 float
        30 IMG2IMG                  bool
        31 CLIPModel                string
        32 CLIPSubfolder            string
        33 CLIPSkip                 int32
        34 Tokenizer                string
        35 LoraBase                 string
        36 LoraAdapter              string
        37 NoMulMatQ                bool
        38 AudioPath                string
        39 DraftModel               string
        40 Quantization             string
        41 MMProj                   string
        42 LoraScale                float
        43 RopeScaling              string
        44 YarnExtFactor            float
        45 YarnAttnFactor           float
        46 YarnBetaFast             float
        47 YarnBetaSlow             float
        48 ControlNet               string
        49 Type                     string
        50 GPUMemoryUtilization     float
        51 TrustRemoteCode          bool
        52 EnforceEager             bool
        53 SwapSpace                int32
        54 MaxModelLen              int32
        55 TensorParallelSize       int32
        56 FlashAttention           string
        57 NoKVOffload              bool
        58 LoadFormat               string
        59 ModelPath                string
        60 LoraAdapters             repeated string
        61 LoraScales               repeated float
        62 Options                  repeated string
        63 CacheTypeKey             string
        64 CacheTypeValue           string
        65 GrammarTriggers          repeated GrammarTrigger
        66 DisableLogStatus         bool
        67 DType                    string
        68 LimitImagePerPrompt      int32
        69 LimitVideoPerPrompt      int32
        70 LimitAudioPerPrompt      int32
        71 Reranking                bool
        72 Overrides                repeated string
        73 EngineArgs               string
        74 Proxy                    ProxyOptions
        75 EnableScore              bool
    """,
    "GrammarTrigger": """
         1 word                     string
    """,
    "ProxyOptions": """
         1 upstream_url             string
         2 mode                     string
         3 provider                 string
         4 api_key_env              string
         5 api_key_file             string
         6 upstream_model           string
         7 request_timeout_seconds  int32
         8 cache_prompt             bool
    """,
    "DetokenizeRequest": """
         1 tokens                   repeated int32
    """,
    "RerankRequest": """
         1 query                    string
         2 documents                repeated string
         3 top_n                    int32
         4 ModelIdentity            string
    """,
    "TokenClassifyRequest": """
         1 text                     string
         2 threshold                float
         3 ModelIdentity            string
    """,
    "ScoreRequest": """
         1 prompt                   string
         2 candidates               repeated string
         3 include_token_logprobs   bool
         4 length_normalize         bool
         5 ModelIdentity            string
         6 stable_prefix_len        int32
    """,
    "MetricsRequest": "",
    "Reply": """
         1 message                  bytes
         2 tokens                   int32
         3 prompt_tokens            int32
         4 timing_prompt_processing double
         5 timing_token_generation  double
         6 audio                    bytes
         7 logprobs                 bytes
         8 chat_deltas              repeated ChatDelta
    """,
    "ChatDelta": """
         1 content                  string
         2 reasoning_content        string
         3 tool_calls               repeated ToolCallDelta
    """,
    "ToolCallDelta": """
         1 index                    int32
         2 id                       string
         3 name                     string
         4 arguments                string
    """,
    "Result": """
         1 message                  string
         2 success                  bool
    """,
    "EmbeddingResult": """
         1 embeddings               repeated float
         2 tokens                   int32
         3 dim                      int32
         4 prompt_tokens            int32
         5 layout                   EmbeddingLayout
    """,
    "TokenizationResponse": """
         1 length                   int32
         2 tokens                   repeated int32
    """,
    "DetokenizeResponse": """
         1 content                  string
    """,
    "StatusResponse": """
         1 state                    State
         2 memory                   MemoryUsageData
    """,
    "MemoryUsageData": """
         1 total                    uint64
         2 breakdown                map<string,uint64>
    """,
    "RerankResult": """
         1 usage                    Usage
         2 results                  repeated DocumentResult
    """,
    "Usage": """
         1 total_tokens             int32
         2 prompt_tokens            int32
    """,
    "DocumentResult": """
         1 index                    int32
         2 text                     string
         3 relevance_score          float
    """,
    "TokenClassifyResponse": """
         1 entities                 repeated TokenClassifyEntity
    """,
    "TokenClassifyEntity": """
         1 entity_group             string
         2 start                    int32
         3 end                      int32
         4 score                    float
         5 text                     string
    """,
    "ScoreResponse": """
         1 candidates               repeated CandidateScore
    """,
    "CandidateScore": """
         1 log_prob                 double
         2 length_normalized_log_prob double
         3 tokens                   repeated TokenLogProb
         4 num_tokens               int32
    """,
    "TokenLogProb": """
         1 token                    string
         2 log_prob                 double
    """,
    "MetricsResponse": """
         1 slot_id                  int32
         2 prompt_json_for_slot     string
         3 tokens_per_second        float
         4 tokens_generated         int32
         5 prompt_tokens_processed  int32
    """,
    "ModelMetadataResponse": """
         1 supports_thinking        bool
         2 rendered_template        string
         3 tool_format              ToolFormatMarkers
         4 media_marker             string
    """,
    "ToolFormatMarkers": """
         1 format_type              string
         2 section_start            string
         3 section_end              string
         4 per_call_start           string
         5 per_call_end             string
         6 func_name_prefix         string
         7 func_name_suffix         string
         8 func_close               string
         9 arg_name_prefix          string
        10 arg_name_suffix          string
        11 arg_value_prefix         string
        12 arg_value_suffix         string
        13 arg_separator            string
        14 name_field               string
        15 args_field               string
        16 id_field                 string
        17 fun_name_is_key          bool
        18 tools_array_wrapped      bool
        20 reasoning_start          string
        21 reasoning_end            string
        22 content_start            string
        23 content_end              string
        24 args_start               string
        25 args_end                 string
        26 function_field           string
        27 parameter_order          repeated string
        28 gen_id_field             string
        29 call_id_position         string
        30 call_id_prefix           string
        31 call_id_suffix           string
    """,
}

# message: numbers that no field may take
RESERVED = {
    "PredictOptions": [24],
    "ToolFormatMarkers": [19],
}

# enum: its values
ENUMS = {
    "EmbeddingLayout": {
        "EMBEDDING_LAYOUT_UNSPECIFIED": 0,
        "EMBEDDING_LAYOUT_FINAL": 1,
        "EMBEDDING_LAYOUT_PER_TOKEN": 2,
    },
    "StatusResponse.State": {"UNINITIALIZED": 0, "BUSY": 1, "READY": 2, "ERROR": -1},
}
