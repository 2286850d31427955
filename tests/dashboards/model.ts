// The dashboards that we write, in Grafana's own types: nothing is allowed that these do not know.
// Where Grafana leaves a record open, the types of the panel's kind close it.
import type {
  Dashboard as AnyDashboard,
  FieldConfig as AnyField,
  Panel as AnyPanel,
  RowPanel as AnyRow,
  DashboardLink,
  DataSourceRef,
  GridPos,
  VariableModel,
} from '@grafana/schema';
import type {
  FieldConfig as TimeSeriesField,
  Options as TimeSeriesOptions,
} from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import type { Options as StatOptions } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';

/** The data source is always the variable. */
interface DataSource {
  type: 'prometheus';
  uid: '${datasource}';
}

/** A query as Grafana's plugin for Prometheus saves it. */
interface Query {
  datasource: DataSource;
  editorMode: 'code';
  expr: string;
  instant: boolean;
  legendFormat: string;
  range: boolean;
  refId: string;
}

interface DataLink {
  title: string;
  url: string;
  targetBlank: boolean;
}

interface Field<Custom> extends Omit<AnyField, 'custom' | 'links' | 'unit' | 'thresholds'> {
  custom?: Custom;
  links?: DataLink[];
  unit: string;
  thresholds: NonNullable<AnyField['thresholds']>;
}

/** Their ids are Grafana's to give. */
interface PanelOf<Kind extends string, Options, Custom>
  extends Omit<AnyPanel, 'id' | 'type' | 'options' | 'fieldConfig' | 'targets' | 'datasource'> {
  type: Kind;
  title: string;
  description: string;
  datasource: DataSource;
  gridPos: GridPos;
  options: Options;
  fieldConfig: { defaults: Field<Custom>; overrides: [] };
  targets: Query[];
}

type TimeSeries = PanelOf<'timeseries', TimeSeriesOptions, TimeSeriesField>;
type Stat = PanelOf<'stat', StatOptions, undefined>;

interface Row extends Omit<AnyRow, 'id' | 'panels'> {
  title: string;
  gridPos: GridPos;
  panels: [];
}

interface QueryOfVariable {
  query: string;
  refId: string;
}

interface Variable extends Omit<VariableModel, 'query' | 'datasource' | 'current'> {
  label: string;
  description: string;
  datasource?: DataSourceRef;
  query: string | QueryOfVariable;
  current: VariableModel['current'] | Record<string, never>;
}

export interface Dashboard
  extends Omit<AnyDashboard, 'id' | 'panels' | 'templating' | 'annotations' | 'snapshot' | 'uid' | 'title' | 'links'> {
  uid: string;
  title: string;
  description: string;
  tags: string[];
  refresh: string;
  links: DashboardLink[];
  annotations: { list: [] };
  templating: { list: Variable[] };
  panels: Array<TimeSeries | Stat | Row>;
}
