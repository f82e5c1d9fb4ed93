# SPDX-License-Identifier: MIT
"""Ask one question over NNRP, print the answer as it comes: python nnrp_client.py nnrp://127.0.0.1:4433 MODEL TEXT"""

import asyncio
import json
import sys

import nnrp.client as sdk
from nnrp.core import MessageType, PayloadKind, TransportPolicy
from nnrp.core.packet import unpack_body, unpack_typed_payload_frames
from nnrp.schema import StreamSemantics

url, model, text = sys.argv[1:]
envelope = {
    "schema_version": "openai-compatible/1",
    "operation": "chat.completions.create",
    "body": {"model": model, "messages": [{"role": "user", "content": text}], "stream": True},
}
frame = sdk.TypedPayloadInputFrame(
    0, PayloadKind.STRUCTURED_EVENT, json.dumps(envelope).encode(), stream_semantics=StreamSemantics.SNAPSHOT
)
submit = sdk.TypedPayloadSubmitInput(sdk.SubmitIdentity(operation_id=1, frame_id=1), sdk.SubmitPolicy(), (frame,))
tcp = sdk.NativeClientProviderRoute()
options = sdk.NativeClientOptions(f"{url}/chat", {"tcp": tcp}, TransportPolicy.FORCE_TCP)


def terminal(event):
    """The last profile event of an operation, from a RESULT_PUSH: response.completed or response.error."""
    body = unpack_body(event.tail.body)
    regions = body.typed_payload_descriptor_region, body.typed_payload_frame_region
    (payload,) = unpack_typed_payload_frames(*regions, payload_kind_bitmap=event.metadata.value.payload_kind_bitmap)
    return json.loads(payload.payload)


with sdk.connect_native_client_connection(options) as connection:
    session = asyncio.run(connection.open_session(sdk.NativeClientSessionOptions()))
    session.submit_operation(sdk.SubmitRequest.typed_payload(submit))
    while True:
        for event in session.poll_events_batch(max_events=1, timeout_ms=2):  # a poll holds up the session's sends
            kind = event.header.message_type if hasattr(event, "header") else None
            if kind is MessageType.PARTIAL_RESULT:
                profile_event = json.loads(event.tail.body)
                if profile_event["type"] == "response.output_text.delta":
                    print(profile_event["delta"], end="", flush=True)
            elif kind is MessageType.RESULT_PUSH:
                last = terminal(event)
                print()
                sys.exit(last["error"]["message"] if last["type"] == "response.error" else 0)
            elif kind in (MessageType.RESULT_DROP, MessageType.RESULT_DROP_REASON):
                sys.exit("the server dropped the request")
