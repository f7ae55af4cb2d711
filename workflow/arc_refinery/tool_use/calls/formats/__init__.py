"""Forms in which models write tool calls; a model's chat template decides which one it is.

One call, `calculator(expression="2*3")`, in each of them:

hermes     <tool_call>\\n{"name": "calculator", "arguments": {"expression": "2*3"}}\\n</tool_call>
qwen-xml   <tool_call>\\n<function=calculator>\\n<parameter=expression>\\n2*3\\n</parameter>\\n</function>\\n
           </tool_call>
"""

from arc_refinery.tool_use.calls.formats.hermes import Hermes
from arc_refinery.tool_use.calls.formats.protocol import CallFormat, MalformedCall, WrittenCall
from arc_refinery.tool_use.calls.formats.qwen_xml import QwenXml

HERMES: CallFormat = Hermes()
FORMATS: dict[str, CallFormat] = {call_format.name: call_format for call_format in (HERMES, QwenXml())}
CALL_FORMAT = "call_format"  # note of a file of episodes
