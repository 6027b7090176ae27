// @modelcontextprotocol/client 2.4: its Client over Streamable HTTP, both eras.
// usage: node ts2.mjs URL legacy|auto|2026-07-28
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { filledIn, finish, step } from './steps.mjs';

const [url, mode] = process.argv.slice(2);
const logs = [];
const progress = [];
const changes = [];

const client = new Client({ name: 'ts2', version: '1' }, {
  capabilities: { sampling: {}, elicitation: { form: {} }, roots: {} },
  ...(mode !== 'legacy' && { versionNegotiation: { mode: mode === 'auto' ? 'auto' : { pin: mode } } }),
});
client.setRequestHandler('sampling/createMessage', async ({ params }) =>
  ({ model: 'm', role: 'assistant', content: { type: 'text', text: `an answer to '${params.messages[0].content.text}'` } }));
client.setRequestHandler('elicitation/create', async ({ params }) => ({ action: 'accept', content: filledIn(params.requestedSchema) }));
client.setRequestHandler('roots/list', async () => ({ roots: [{ uri: 'file:///project' }] }));
client.setNotificationHandler('notifications/message', ({ params }) => { logs.push(params.data); });
client.setNotificationHandler('notifications/tools/list_changed', n => { changes.push(n); });

const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);
const modern = !!client.getDiscoverResult();
console.log('negotiated', client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion);
const call = (name, args, options) => client.callTool({ name, ...(args && { arguments: args }) }, options);

await step('tools/list', () => client.listTools());
await step('call simple', () => call('test_simple_text'));
await step('call image', () => call('test_image_content'));
await step('call error', () => call('test_error_handling'));
await step('a header for an argument', () => call('test_x_mcp_header', { region: 'Zürich' }));
await step('progress', () => call('test_tool_with_progress', undefined, { onprogress: p => progress.push(p.progress) }));
console.log('progress seen', JSON.stringify(progress));
if (!modern) await step('setLevel', () => client.setLoggingLevel('debug'));
const wanted = modern ? { _meta: { 'io.modelcontextprotocol/logLevel': 'debug' } } : {};
await step('logging', () => client.callTool({ name: 'test_tool_with_logging', ...wanted }));
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
await step('elicit enums', () => call('test_elicitation_sep1330_enums'));
await step('roots', () => call('test_input_required_result_list_roots'));
await step('two rounds', () => call('test_input_required_result_multi_round'));
await step('a prompt that asks', () => client.getPrompt({ name: 'test_input_required_result_prompt' }));
if (modern) {
  await step('several questions at once', () => call('test_input_required_result_multiple_inputs'));
  await step('subscriptions/listen', async () => {
    const subscription = await client.listen({ toolsListChanged: true });
    await call('test_trigger_tool_change');
    for (let i = 0; i < 100 && !changes.length; i += 1) await new Promise(done => setTimeout(done, 50));
    await subscription.close();
    if (!changes.length) throw new Error('heard of no change in 5 s');
    return changes;
  });
} else {
  await step('ping', () => client.ping());
  await step('subscribe', () => client.subscribeResource({ uri: 'test://watched-resource' }));
  await step('unsubscribe', () => client.unsubscribeResource({ uri: 'test://watched-resource' }));
  await step('resume a stream', () => call('test_reconnection'));
  await step('terminate', () => transport.terminateSession());
}
await client.close();
finish();
