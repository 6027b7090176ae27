// @modelcontextprotocol/sdk 1.32: its Client over Streamable HTTP, which knows the revisions up to 2025-11-25.
// usage: node ts1.mjs URL
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema, LoggingMessageNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { filledIn, finish, step } from './steps.mjs';

const [url] = process.argv.slice(2);
const logs = [];
const progress = [];

const client = new Client({ name: 'ts1', version: '1' }, { capabilities: { sampling: {}, elicitation: {}, roots: {} } });
client.setRequestHandler(CreateMessageRequestSchema, async ({ params }) =>
  ({ model: 'm', role: 'assistant', content: { type: 'text', text: `an answer to '${params.messages[0].content.text}'` } }));
client.setRequestHandler(ElicitRequestSchema, async ({ params }) => ({ action: 'accept', content: filledIn(params.requestedSchema) }));
client.setRequestHandler(ListRootsRequestSchema, async () => ({ roots: [{ uri: 'file:///project' }] }));
client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => { logs.push(params.data); });

const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);
console.log('negotiated', transport.protocolVersion, 'session', transport.sessionId);
const call = (name, args, options) => client.callTool({ name, ...(args && { arguments: args }) }, undefined, options);

await step('ping', () => client.ping());
await step('tools/list', () => client.listTools());
await step('call simple', () => call('test_simple_text'));
await step('call image', () => call('test_image_content'));
await step('call error', () => call('test_error_handling'));
await step('progress', () => call('test_tool_with_progress', undefined, { onprogress: p => progress.push(p.progress) }));
console.log('progress seen', JSON.stringify(progress));
await step('setLevel', () => client.setLoggingLevel('debug'));
await step('logging', () => call('test_tool_with_logging'));
console.log('logs seen', JSON.stringify(logs));
await step('resources/list', () => client.listResources());
await step('templates/list', () => client.listResourceTemplates());
await step('read text', () => client.readResource({ uri: 'test://static-text' }));
await step('read template', () => client.readResource({ uri: 'test://template/42/data' }));
await step('prompts/list', () => client.listPrompts());
await step('prompts/get', () => client.getPrompt({ name: 'test_prompt_with_arguments', arguments: { arg1: 'a', arg2: 'b' } }));
await step('completion', () => client.complete({
  ref: { type: 'ref/prompt', name: 'test_prompt_with_arguments' }, argument: { name: 'arg1', value: 'te' },
}));
await step('sampling', () => call('test_sampling', { prompt: 'hi' }));
await step('elicitation', () => call('test_elicitation', { message: 'hi' }));
await step('elicit defaults', () => call('test_elicitation_sep1034_defaults'));
await step('elicit enums', () => call('test_elicitation_sep1330_enums'));
await step('roots', () => call('test_input_required_result_list_roots'));
await step('subscribe', () => client.subscribeResource({ uri: 'test://watched-resource' }));
await step('unsubscribe', () => client.unsubscribeResource({ uri: 'test://watched-resource' }));
await step('resume a stream', () => call('test_reconnection'));
await step('terminate', () => transport.terminateSession());
await client.close();
finish();
