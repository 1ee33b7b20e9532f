# A plugin for sos (https://github.com/sosreport/sos): copy it to sos/report/plugins, or to
# /usr/lib/python3/dist-packages/sos/report/plugins of the node.

from sos.report.plugins import Plugin, IndependentPlugin
from sos.utilities import is_executable


class Svcnet(Plugin, IndependentPlugin):

    short_desc = 'How this node forwards traffic for Kubernetes Services'

    plugin_name = 'svcnet'
    profiles = ('network', 'container', 'cluster')
    commands = ('svcnet', 'kubectl-svcnet')

    def setup(self):
        # Reading loads no module and changes no rule; --silent leaves the
        # packet counters alone, too.
        name = 'svcnet' if is_executable('svcnet') else 'kubectl-svcnet'
        for command, suggested in (
                ('audit --silent -o json', 'report.json'),
                ('audit --silent', 'report.txt'),
                ('status --silent -o json', 'status.json'),
                ('status --silent', 'status.txt')):
            self.add_cmd_output(
                f'{name} {command}', suggest_filename=suggested, timeout=120)
